<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE TS>
<TS version="2.1" language="de_DE" sourcelanguage="en">
<context>
    <name>AboutBox</name>
    <message>
        <source>About Omnibus</source>
        <translation>Über Omnibus</translation>
    </message>
    <message>
        <source>Close</source>
        <translation>Schließen</translation>
    </message>
    <message>
        <source>Licence</source>
        <translation>Lizenz</translation>
    </message>
    <message>
        <source>Many chats at once with one model on your own machine, and a window onto the batch they ride in.</source>
        <translation>Viele Chats zugleich mit einem Modell auf dem eigenen Rechner, und ein Fenster auf den Stapel, in dem sie fahren.</translation>
    </message>
    <message>
        <source>No account, no telemetry. Once a model is there, no network.</source>
        <translation>Kein Konto, keine Telemetrie. Ist ein Modell da, auch kein Netz.</translation>
    </message>
    <message>
        <source>Parts of Omnibus and their licences</source>
        <translation>Teile von Omnibus und ihre Lizenzen</translation>
    </message>
</context>
<context>
    <name>ActionBar</name>
    <message>
        <source>Actions for the answer</source>
        <translation>Aktionen für die Antwort</translation>
    </message>
    <message>
        <source>Actions for your message</source>
        <translation>Aktionen für Ihre Nachricht</translation>
    </message>
    <message>
        <source>Branch: a new chat from here</source>
        <translation>Abzweigen: ein neuer Chat ab hier</translation>
    </message>
    <message>
        <source>Continue this answer (Alt+Enter)</source>
        <translation>Diese Antwort fortsetzen (Alt+Eingabe)</translation>
    </message>
    <message>
        <source>Copy</source>
        <translation>Kopieren</translation>
    </message>
    <message>
        <source>Delete</source>
        <translation>Löschen</translation>
    </message>
    <message>
        <source>Edit: makes a new version</source>
        <translation>Bearbeiten: ergibt eine neue Fassung</translation>
    </message>
    <message>
        <source>Regenerate: another version of this answer</source>
        <translation>Neu erzeugen: eine andere Fassung dieser Antwort</translation>
    </message>
    <message>
        <source>Version after (Alt+Right)</source>
        <translation>Nächste Fassung (Alt+Rechts)</translation>
    </message>
    <message>
        <source>Version before (Alt+Left)</source>
        <translation>Vorige Fassung (Alt+Links)</translation>
    </message>
</context>
<context>
    <name>Answer</name>
    <message>
        <source>1 token</source>
        <translation>1 Token</translation>
    </message>
    <message>
        <source>Attached: {0}</source>
        <translation>Angehängt: {0}</translation>
    </message>
    <message>
        <source>Try again</source>
        <translation>Noch einmal</translation>
    </message>
    <message>
        <source>complete</source>
        <translation>vollständig</translation>
    </message>
    <message>
        <source>decode {0}</source>
        <translation>Decode {0}</translation>
    </message>
    <message>
        <source>ended at its length limit</source>
        <translation>endete an der Längengrenze</translation>
    </message>
    <message>
        <source>interrupted when Omnibus closed</source>
        <translation>unterbrochen, als Omnibus schloss</translation>
    </message>
    <message>
        <source>prefill {0}</source>
        <translation>Prefill {0}</translation>
    </message>
    <message>
        <source>stopped by you</source>
        <translation>von Ihnen angehalten</translation>
    </message>
    <message>
        <source>waited {0}</source>
        <translation>gewartet {0}</translation>
    </message>
    <message>
        <source>{0:.1f} tok/s</source>
        <translation>{0:.1f} Tok/s</translation>
    </message>
    <message>
        <source>{0} tokens</source>
        <translation>{0} Token</translation>
    </message>
    <message>
        <source>{0}th</source>
        <translation>{0}.</translation>
    </message>
</context>
<context>
    <name>ApiRows</name>
    <message>
        <source>Copy address</source>
        <translation>Adresse kopieren</translation>
    </message>
    <message>
        <source>Copy token</source>
        <translation>Schlüssel kopieren</translation>
    </message>
    <message>
        <source>off</source>
        <translation>aus</translation>
    </message>
    <message>
        <source>one moment …</source>
        <translation>einen Moment …</translation>
    </message>
</context>
<context>
    <name>AttachmentChips</name>
    <message>
        <source>Attachments</source>
        <translation>Anhänge</translation>
    </message>
    <message>
        <source>Put {0} back as text</source>
        <translation>{0} wieder als Text einsetzen</translation>
    </message>
    <message>
        <source>Remove {0}</source>
        <translation>{0} entfernen</translation>
    </message>
    <message>
        <source>{0:,.0f}k characters</source>
        <translation>{0:,.0f}k Zeichen</translation>
    </message>
    <message>
        <source>{0:,} characters</source>
        <translation>{0:,} Zeichen</translation>
    </message>
    <message>
        <source>{0}, {1:,} characters</source>
        <translation>{0}, {1:,} Zeichen</translation>
    </message>
</context>
<context>
    <name>ChatFiles</name>
    <message>
        <source>Another import is still being read.</source>
        <translation>Ein anderer Import wird noch gelesen.</translation>
    </message>
    <message>
        <source>Dismiss</source>
        <translation>Ausblenden</translation>
    </message>
    <message>
        <source>Export</source>
        <translation>Exportieren</translation>
    </message>
    <message>
        <source>Exports (*.json *.zip *.jsonl);;All files (*)</source>
        <translation>Exporte (*.json *.zip *.jsonl);;Alle Dateien (*)</translation>
    </message>
    <message>
        <source>Import chats</source>
        <translation>Chats importieren</translation>
    </message>
    <message>
        <source>Reading {0} …</source>
        <translation>{0} wird gelesen …</translation>
    </message>
    <message>
        <source>There is nothing to export yet.</source>
        <translation>Es gibt noch nichts zu exportieren.</translation>
    </message>
    <message>
        <source>Written to {0}.</source>
        <translation>Nach {0} geschrieben.</translation>
    </message>
    <message>
        <source>{0} could not be read ({1}).</source>
        <translation>{0} konnte nicht gelesen werden ({1}).</translation>
    </message>
    <message>
        <source>{0} could not be written: {1}.</source>
        <translation>{0} konnte nicht geschrieben werden: {1}.</translation>
    </message>
</context>
<context>
    <name>ChatMenu</name>
    <message>
        <source>Delete</source>
        <translation>Löschen</translation>
    </message>
    <message>
        <source>Delete {0} chats</source>
        <translation>{0} Chats löschen</translation>
    </message>
    <message>
        <source>Export …</source>
        <translation>Exportieren …</translation>
    </message>
    <message>
        <source>Move to folder</source>
        <translation>In Ordner verschieben</translation>
    </message>
    <message>
        <source>Name of the folder</source>
        <translation>Name des Ordners</translation>
    </message>
    <message>
        <source>New folder</source>
        <translation>Neuer Ordner</translation>
    </message>
    <message>
        <source>New folder …</source>
        <translation>Neuer Ordner …</translation>
    </message>
    <message>
        <source>Open</source>
        <translation>Öffnen</translation>
    </message>
    <message>
        <source>Out of its folder</source>
        <translation>Aus dem Ordner nehmen</translation>
    </message>
    <message>
        <source>Pin</source>
        <translation>Anheften</translation>
    </message>
    <message>
        <source>Rename</source>
        <translation>Umbenennen</translation>
    </message>
    <message>
        <source>Unpin</source>
        <translation>Lösen</translation>
    </message>
</context>
<context>
    <name>ChatPage</name>
    <message>
        <source>Attach files</source>
        <translation>Dateien anhängen</translation>
    </message>
    <message>
        <source>Cancel</source>
        <translation>Abbrechen</translation>
    </message>
    <message>
        <source>Copy address</source>
        <translation>Adresse kopieren</translation>
    </message>
    <message>
        <source>Dismiss</source>
        <translation>Ausblenden</translation>
    </message>
    <message>
        <source>Editing the answer: makes a new version</source>
        <translation>Antwort wird bearbeitet: ergibt eine neue Fassung</translation>
    </message>
    <message>
        <source>Editing your message: it is asked anew, the old one stays as a version</source>
        <translation>Ihre Nachricht wird bearbeitet: Sie wird neu gefragt, die alte bleibt als Fassung</translation>
    </message>
    <message>
        <source>Everything runs on this machine. Open more tabs: they are answered together.</source>
        <translation>Alles läuft auf diesem Rechner. Öffnen Sie mehr Tabs: Sie werden zusammen beantwortet.</translation>
    </message>
    <message>
        <source>Explain how a city bus is like a batch</source>
        <translation>Erkläre, was ein Stadtbus mit einem Stapel gemein hat</translation>
    </message>
    <message>
        <source>Explain, with a city bus as the picture, how a server can answer many chats at once.</source>
        <translation>Erkläre am Bild eines Stadtbusses, wie ein Server viele Chats zugleich beantworten kann.</translation>
    </message>
    <message>
        <source>Open</source>
        <translation>Öffnen</translation>
    </message>
    <message>
        <source>Open in the browser?</source>
        <translation>Im Browser öffnen?</translation>
    </message>
    <message>
        <source>Plan a rainy Sunday</source>
        <translation>Plane einen verregneten Sonntag</translation>
    </message>
    <message>
        <source>Show me a small Python program</source>
        <translation>Zeig mir ein kleines Python-Programm</translation>
    </message>
    <message>
        <source>Suggest five things to do on a rainy Sunday at home, as a list.</source>
        <translation>Schlage als Liste fünf Dinge vor, die man an einem verregneten Sonntag zu Hause tun kann.</translation>
    </message>
    <message>
        <source>Undo</source>
        <translation>Rückgängig</translation>
    </message>
    <message>
        <source>What shall we talk about?</source>
        <translation>Worüber wollen wir reden?</translation>
    </message>
    <message>
        <source>Write a short poem about patience</source>
        <translation>Schreib ein kurzes Gedicht über Geduld</translation>
    </message>
    <message>
        <source>Write a short poem about patience, four lines long.</source>
        <translation>Schreib ein kurzes Gedicht über Geduld, vier Zeilen lang.</translation>
    </message>
    <message>
        <source>Write a small Python program that prints the first ten prime numbers, and explain it.</source>
        <translation>Schreib ein kleines Python-Programm, das die ersten zehn Primzahlen ausgibt, und erkläre es.</translation>
    </message>
</context>
<context>
    <name>Code</name>
    <message>
        <source>Copy</source>
        <translation>Kopieren</translation>
    </message>
</context>
<context>
    <name>Composer</name>
    <message>
        <source>Attach text, code or PDF (or drop it here)</source>
        <translation>Text, Code oder PDF anhängen (oder hierher ziehen)</translation>
    </message>
    <message>
        <source>Cancel the edit (Esc)</source>
        <translation>Bearbeiten abbrechen (Esc)</translation>
    </message>
    <message>
        <source>Composer</source>
        <translation>Eingabe</translation>
    </message>
    <message>
        <source>Edit queued message</source>
        <translation>Wartende Nachricht bearbeiten</translation>
    </message>
    <message>
        <source>Held</source>
        <translation>Zurückgehalten</translation>
    </message>
    <message>
        <source>Next</source>
        <translation>Als Nächstes</translation>
    </message>
    <message>
        <source>Remove queued message</source>
        <translation>Wartende Nachricht entfernen</translation>
    </message>
</context>
<context>
    <name>DownButton</name>
    <message>
        <source>To the bottom</source>
        <translation>Ans Ende</translation>
    </message>
</context>
<context>
    <name>FindBar</name>
    <message>
        <source>1 match</source>
        <translation>1 Treffer</translation>
    </message>
    <message>
        <source>Close (Esc)</source>
        <translation>Schließen (Esc)</translation>
    </message>
    <message>
        <source>Find in this chat</source>
        <translation>In diesem Chat suchen</translation>
    </message>
    <message>
        <source>Match before (Shift+F3)</source>
        <translation>Voriger Treffer (Umschalt+F3)</translation>
    </message>
    <message>
        <source>Next match (F3)</source>
        <translation>Nächster Treffer (F3)</translation>
    </message>
    <message>
        <source>No match</source>
        <translation>Kein Treffer</translation>
    </message>
    <message>
        <source>{0:,} matches</source>
        <translation>{0:,} Treffer</translation>
    </message>
    <message>
        <source>{0:,} of {1:,}</source>
        <translation>{0:,} von {1:,}</translation>
    </message>
</context>
<context>
    <name>Keys</name>
    <message>
        <source>About</source>
        <translation>Über Omnibus</translation>
    </message>
    <message>
        <source>Close tab</source>
        <translation>Tab schließen</translation>
    </message>
    <message>
        <source>Command palette</source>
        <translation>Befehlspalette</translation>
    </message>
    <message>
        <source>Composer</source>
        <translation>Eingabefeld</translation>
    </message>
    <message>
        <source>Continue</source>
        <translation>Weiterschreiben</translation>
    </message>
    <message>
        <source>Copy last answer</source>
        <translation>Letzte Antwort kopieren</translation>
    </message>
    <message>
        <source>Copy last code</source>
        <translation>Letzten Code kopieren</translation>
    </message>
    <message>
        <source>Dashboard</source>
        <translation>Dashboard</translation>
    </message>
    <message>
        <source>Dashboard full</source>
        <translation>Dashboard ganz</translation>
    </message>
    <message>
        <source>Delete chat</source>
        <translation>Chat löschen</translation>
    </message>
    <message>
        <source>Export all chats</source>
        <translation>Alle Chats exportieren</translation>
    </message>
    <message>
        <source>Export this chat</source>
        <translation>Diesen Chat exportieren</translation>
    </message>
    <message>
        <source>Find</source>
        <translation>Im Chat suchen</translation>
    </message>
    <message>
        <source>Find before</source>
        <translation>Voriger Fund</translation>
    </message>
    <message>
        <source>Find next</source>
        <translation>Nächster Fund</translation>
    </message>
    <message>
        <source>Import chats</source>
        <translation>Chats importieren</translation>
    </message>
    <message>
        <source>Light or dark</source>
        <translation>Hell oder dunkel</translation>
    </message>
    <message>
        <source>List of keys</source>
        <translation>Liste der Tasten</translation>
    </message>
    <message>
        <source>Message after</source>
        <translation>Nächste Nachricht</translation>
    </message>
    <message>
        <source>Message before</source>
        <translation>Vorige Nachricht</translation>
    </message>
    <message>
        <source>Models</source>
        <translation>Modelle</translation>
    </message>
    <message>
        <source>New tab</source>
        <translation>Neuer Tab</translation>
    </message>
    <message>
        <source>Next tab</source>
        <translation>Nächster Tab</translation>
    </message>
    <message>
        <source>Parameters</source>
        <translation>Parameter</translation>
    </message>
    <message>
        <source>Pin or unpin</source>
        <translation>Anheften oder lösen</translation>
    </message>
    <message>
        <source>Previous tab</source>
        <translation>Voriger Tab</translation>
    </message>
    <message>
        <source>Quit</source>
        <translation>Beenden</translation>
    </message>
    <message>
        <source>Regenerate</source>
        <translation>Neu antworten</translation>
    </message>
    <message>
        <source>Rename</source>
        <translation>Umbenennen</translation>
    </message>
    <message>
        <source>Reopen tab</source>
        <translation>Tab wieder öffnen</translation>
    </message>
    <message>
        <source>Search</source>
        <translation>Suchen</translation>
    </message>
    <message>
        <source>Settings</source>
        <translation>Einstellungen</translation>
    </message>
    <message>
        <source>Sidebar</source>
        <translation>Seitenleiste</translation>
    </message>
    <message>
        <source>Stop</source>
        <translation>Anhalten</translation>
    </message>
    <message>
        <source>Stop all</source>
        <translation>Alle anhalten</translation>
    </message>
    <message>
        <source>Tab 1</source>
        <translation>Tab 1</translation>
    </message>
    <message>
        <source>Tab 2</source>
        <translation>Tab 2</translation>
    </message>
    <message>
        <source>Tab 3</source>
        <translation>Tab 3</translation>
    </message>
    <message>
        <source>Tab 4</source>
        <translation>Tab 4</translation>
    </message>
    <message>
        <source>Tab 5</source>
        <translation>Tab 5</translation>
    </message>
    <message>
        <source>Tab 6</source>
        <translation>Tab 6</translation>
    </message>
    <message>
        <source>Tab 7</source>
        <translation>Tab 7</translation>
    </message>
    <message>
        <source>Tab 8</source>
        <translation>Tab 8</translation>
    </message>
    <message>
        <source>Tab 9</source>
        <translation>Tab 9</translation>
    </message>
    <message>
        <source>Version after</source>
        <translation>Nächste Fassung</translation>
    </message>
    <message>
        <source>Version before</source>
        <translation>Vorige Fassung</translation>
    </message>
    <message>
        <source>Zoom back</source>
        <translation>Zoom zurücksetzen</translation>
    </message>
    <message>
        <source>Zoom in</source>
        <translation>Vergrößern</translation>
    </message>
    <message>
        <source>Zoom out</source>
        <translation>Verkleinern</translation>
    </message>
</context>
<context>
    <name>Library</name>
    <message>
        <source>New chats are kept in memory only, and end with the window.</source>
        <translation>Neue Chats liegen nur im Speicher und enden mit dem Fenster.</translation>
    </message>
</context>
<context>
    <name>MainWindow</name>
    <message>
        <source>Close</source>
        <translation>Schließen</translation>
    </message>
    <message>
        <source>Close others</source>
        <translation>Andere schließen</translation>
    </message>
    <message>
        <source>Delete chat</source>
        <translation>Chat löschen</translation>
    </message>
    <message>
        <source>Dismiss</source>
        <translation>Ausblenden</translation>
    </message>
    <message>
        <source>New chat</source>
        <translation>Neuer Chat</translation>
    </message>
    <message>
        <source>Stop</source>
        <translation>Anhalten</translation>
    </message>
</context>
<context>
    <name>MessageActions</name>
    <message>
        <source>The message was deleted.</source>
        <translation>Die Nachricht wurde gelöscht.</translation>
    </message>
    <message>
        <source>This version and 1 message after it were deleted.</source>
        <translation>Diese Fassung und 1 Nachricht danach wurden gelöscht.</translation>
    </message>
    <message>
        <source>This version and {0} messages after it were deleted.</source>
        <translation>Diese Fassung und {0} Nachrichten danach wurden gelöscht.</translation>
    </message>
</context>
<context>
    <name>MessageEdit</name>
    <message>
        <source>Message</source>
        <translation>Nachricht</translation>
    </message>
</context>
<context>
    <name>ModelBox</name>
    <message>
        <source>Change the model  Ctrl+M</source>
        <translation>Modell wechseln  Strg+M</translation>
    </message>
    <message>
        <source>Model</source>
        <translation>Modell</translation>
    </message>
</context>
<context>
    <name>Palette</name>
    <message>
        <source>Command</source>
        <translation>Befehl</translation>
    </message>
    <message>
        <source>Command palette</source>
        <translation>Befehlspalette</translation>
    </message>
    <message>
        <source>Commands</source>
        <translation>Befehle</translation>
    </message>
    <message>
        <source>What shall be done?</source>
        <translation>Was soll geschehen?</translation>
    </message>
</context>
<context>
    <name>ParametersPanel</name>
    <message>
        <source>0 always takes the likeliest token</source>
        <translation>0 nimmt immer das wahrscheinlichste Token</translation>
    </message>
    <message>
        <source>Above 1 holds back what was said already; 1 is off</source>
        <translation>Über 1 hält zurück, was schon gesagt ist; 1 ist aus</translation>
    </message>
    <message>
        <source>Changes hold from the next answer on.</source>
        <translation>Änderungen gelten ab der nächsten Antwort.</translation>
    </message>
    <message>
        <source>Context used</source>
        <translation>Belegter Kontext</translation>
    </message>
    <message>
        <source>Context: known once a model is loaded</source>
        <translation>Kontext: bekannt, sobald ein Modell geladen ist</translation>
    </message>
    <message>
        <source>Context: {0:,} of {1:,} tokens</source>
        <translation>Kontext: {0:,} von {1:,} Token</translation>
    </message>
    <message>
        <source>Draws from the likeliest tokens that make up this share; 1 is off</source>
        <translation>Zieht aus den wahrscheinlichsten Token, die diesen Anteil ausmachen; 1 ist aus</translation>
    </message>
    <message>
        <source>Forget the oldest turns</source>
        <translation>Älteste Beiträge vergessen</translation>
    </message>
    <message>
        <source>How the model should behave in this chat</source>
        <translation>Wie sich das Modell in diesem Chat verhalten soll</translation>
    </message>
    <message>
        <source>Leaves out tokens less likely than this share of the likeliest; 0 is off</source>
        <translation>Lässt Token weg, die unwahrscheinlicher sind als dieser Anteil des wahrscheinlichsten; 0 ist aus</translation>
    </message>
    <message>
        <source>Longest answer</source>
        <translation>Längste Antwort</translation>
    </message>
    <message>
        <source>Min-p</source>
        <translation>Min-p</translation>
    </message>
    <message>
        <source>Off</source>
        <translation>Aus</translation>
    </message>
    <message>
        <source>Parameters</source>
        <translation>Parameter</translation>
    </message>
    <message>
        <source>Random</source>
        <translation>Zufällig</translation>
    </message>
    <message>
        <source>Repetition</source>
        <translation>Wiederholung</translation>
    </message>
    <message>
        <source>Repetition penalty</source>
        <translation>Wiederholungsstrafe</translation>
    </message>
    <message>
        <source>Seed</source>
        <translation>Startwert</translation>
    </message>
    <message>
        <source>Stop and say so</source>
        <translation>Anhalten und es sagen</translation>
    </message>
    <message>
        <source>System prompt</source>
        <translation>Systemprompt</translation>
    </message>
    <message>
        <source>Temperature</source>
        <translation>Temperatur</translation>
    </message>
    <message>
        <source>The same seed gives the same answer</source>
        <translation>Gleicher Startwert, gleiche Antwort</translation>
    </message>
    <message>
        <source>This chat</source>
        <translation>Dieser Chat</translation>
    </message>
    <message>
        <source>Top-k</source>
        <translation>Top-k</translation>
    </message>
    <message>
        <source>Top-p</source>
        <translation>Top-p</translation>
    </message>
    <message>
        <source>What happens when the chat outgrows the model's context. The system prompt always stays.</source>
        <translation>Was geschieht, wenn der Chat größer wird als der Kontext des Modells. Der Systemprompt bleibt immer.</translation>
    </message>
    <message>
        <source>When the context is full</source>
        <translation>Wenn der Kontext voll ist</translation>
    </message>
</context>
<context>
    <name>Preferences</name>
    <message>
        <source>Dismiss</source>
        <translation>Ausblenden</translation>
    </message>
    <message>
        <source>The answer is ready.</source>
        <translation>Die Antwort ist fertig.</translation>
    </message>
</context>
<context>
    <name>PresetRow</name>
    <message>
        <source>A preset needs a name.</source>
        <translation>Eine Voreinstellung braucht einen Namen.</translation>
    </message>
    <message>
        <source>Balanced</source>
        <translation>Ausgewogen</translation>
    </message>
    <message>
        <source>Creative</source>
        <translation>Einfallsreich</translation>
    </message>
    <message>
        <source>Delete</source>
        <translation>Löschen</translation>
    </message>
    <message>
        <source>Likeliest word only</source>
        <translation>Nur das wahrscheinlichste Wort</translation>
    </message>
    <message>
        <source>Name of the preset</source>
        <translation>Name der Voreinstellung</translation>
    </message>
    <message>
        <source>Precise</source>
        <translation>Genau</translation>
    </message>
    <message>
        <source>Preset</source>
        <translation>Voreinstellung</translation>
    </message>
    <message>
        <source>Preset…</source>
        <translation>Voreinstellung …</translation>
    </message>
    <message>
        <source>Rename…</source>
        <translation>Umbenennen …</translation>
    </message>
    <message>
        <source>Replace by the present parameters</source>
        <translation>Durch die jetzigen Parameter ersetzen</translation>
    </message>
    <message>
        <source>Save</source>
        <translation>Speichern</translation>
    </message>
    <message>
        <source>Save the present parameters…</source>
        <translation>Jetzige Parameter speichern …</translation>
    </message>
    <message>
        <source>Save, rename or delete presets</source>
        <translation>Voreinstellungen speichern, umbenennen oder löschen</translation>
    </message>
    <message>
        <source>There is a preset of this name already: choose another.</source>
        <translation>Eine Voreinstellung dieses Namens gibt es schon: Wählen Sie einen anderen.</translation>
    </message>
    <message>
        <source>Undo</source>
        <translation>Rückgängig</translation>
    </message>
    <message>
        <source>With the system prompt</source>
        <translation>Mit dem Systemprompt</translation>
    </message>
    <message>
        <source>“{0}” was deleted.</source>
        <translation>„{0}“ wurde gelöscht.</translation>
    </message>
    <message>
        <source>“{0}” was replaced.</source>
        <translation>„{0}“ wurde ersetzt.</translation>
    </message>
    <message>
        <source>“{0}” was saved.</source>
        <translation>„{0}“ wurde gespeichert.</translation>
    </message>
</context>
<context>
    <name>Progress</name>
    <message>
        <source>Ask anything</source>
        <translation>Fragen Sie, was Sie wollen</translation>
    </message>
    <message>
        <source>Ask anything; it is answered as soon as the model is loaded</source>
        <translation>Fragen Sie, was Sie wollen; beantwortet wird, sobald das Modell geladen ist</translation>
    </message>
    <message>
        <source>Copy</source>
        <translation>Kopieren</translation>
    </message>
    <message>
        <source>Dismiss</source>
        <translation>Ausblenden</translation>
    </message>
    <message>
        <source>No model</source>
        <translation>Kein Modell</translation>
    </message>
    <message>
        <source>Restart Omnibus</source>
        <translation>Omnibus neu starten</translation>
    </message>
    <message>
        <source>Try again</source>
        <translation>Noch einmal</translation>
    </message>
</context>
<context>
    <name>Questions</name>
    <message>
        <source>1 answer is still being written. What is there stays.</source>
        <translation>Eine Antwort wird noch geschrieben. Was da ist, bleibt.</translation>
    </message>
    <message>
        <source>Cancel</source>
        <translation>Abbrechen</translation>
    </message>
    <message>
        <source>Close, keep writing</source>
        <translation>Schließen, weiterschreiben</translation>
    </message>
    <message>
        <source>Dismiss</source>
        <translation>Ausblenden</translation>
    </message>
    <message>
        <source>Quit all the same</source>
        <translation>Trotzdem beenden</translation>
    </message>
    <message>
        <source>Quit when they are written</source>
        <translation>Beenden, wenn sie geschrieben sind</translation>
    </message>
    <message>
        <source>Stay</source>
        <translation>Bleiben</translation>
    </message>
    <message>
        <source>Stop and close</source>
        <translation>Anhalten und schließen</translation>
    </message>
    <message>
        <source>Stop and quit</source>
        <translation>Anhalten und beenden</translation>
    </message>
    <message>
        <source>The last messages could not be saved yet: they are lost if the window closes now. Free some space, or export them.</source>
        <translation>Die letzten Nachrichten konnten noch nicht gesichert werden: Sie gehen verloren, wenn das Fenster jetzt schließt. Schaffen Sie Platz oder exportieren Sie sie.</translation>
    </message>
    <message>
        <source>These chats are kept in memory only: they are lost when the window closes. Export those that matter.</source>
        <translation>Diese Chats liegen nur im Speicher: Sie gehen verloren, wenn das Fenster schließt. Exportieren Sie, was wichtig ist.</translation>
    </message>
    <message>
        <source>Undo</source>
        <translation>Rückgängig</translation>
    </message>
    <message>
        <source>{0} answers are still being written. What is there stays.</source>
        <translation>{0} Antworten werden noch geschrieben. Was da ist, bleibt.</translation>
    </message>
    <message>
        <source>{0} chats were deleted.</source>
        <translation>{0} Chats wurden gelöscht.</translation>
    </message>
    <message>
        <source>“{0}” is still being answered.</source>
        <translation>„{0}“ wird noch beantwortet.</translation>
    </message>
    <message>
        <source>“{0}” was deleted.</source>
        <translation>„{0}“ wurde gelöscht.</translation>
    </message>
</context>
<context>
    <name>SearchCard</name>
    <message>
        <source>1 find</source>
        <translation>1 Fund</translation>
    </message>
    <message>
        <source>Assistant</source>
        <translation>Assistent</translation>
    </message>
    <message>
        <source>Finds</source>
        <translation>Funde</translation>
    </message>
    <message>
        <source>Nothing was found.</source>
        <translation>Nichts gefunden.</translation>
    </message>
    <message>
        <source>Recent chats</source>
        <translation>Letzte Chats</translation>
    </message>
    <message>
        <source>Search</source>
        <translation>Suchen</translation>
    </message>
    <message>
        <source>Search all chats</source>
        <translation>Alle Chats durchsuchen</translation>
    </message>
    <message>
        <source>What was said there</source>
        <translation>Was dort gesagt wurde</translation>
    </message>
    <message>
        <source>You</source>
        <translation>Sie</translation>
    </message>
    <message>
        <source>{0} finds</source>
        <translation>{0} Funde</translation>
    </message>
</context>
<context>
    <name>Selection</name>
    <message>
        <source>Copy</source>
        <translation>Kopieren</translation>
    </message>
    <message>
        <source>Copy link address</source>
        <translation>Adresse des Links kopieren</translation>
    </message>
    <message>
        <source>Select all</source>
        <translation>Alles auswählen</translation>
    </message>
</context>
<context>
    <name>SendButton</name>
    <message>
        <source>Send</source>
        <translation>Senden</translation>
    </message>
    <message>
        <source>Send ({0})</source>
        <translation>Senden ({0})</translation>
    </message>
    <message>
        <source>Stop</source>
        <translation>Anhalten</translation>
    </message>
    <message>
        <source>Stop (Esc)</source>
        <translation>Anhalten (Esc)</translation>
    </message>
</context>
<context>
    <name>SettingsCard</name>
    <message>
        <source>A second model is loaded beside the first when memory has comfortable room for both; else they take turns</source>
        <translation>Ein zweites Modell wird neben dem ersten geladen, wenn der Speicher bequem für beide reicht; sonst wechseln sie sich ab</translation>
    </message>
    <message>
        <source>Address and token</source>
        <translation>Adresse und Schlüssel</translation>
    </message>
    <message>
        <source>Always</source>
        <translation>Immer</translation>
    </message>
    <message>
        <source>As the system</source>
        <translation>Wie das System</translation>
    </message>
    <message>
        <source>Back to the default</source>
        <translation>Zurück zur Vorgabe</translation>
    </message>
    <message>
        <source>Ctrl+Enter</source>
        <translation>Strg+Eingabe</translation>
    </message>
    <message>
        <source>Dark</source>
        <translation>Dunkel</translation>
    </message>
    <message>
        <source>Dark or light, or as the desktop has it</source>
        <translation>Dunkel oder hell, oder wie es der Desktop vorgibt</translation>
    </message>
    <message>
        <source>Enter</source>
        <translation>Eingabe</translation>
    </message>
    <message>
        <source>From 500 million parameters</source>
        <translation>Ab 500 Millionen Parametern</translation>
    </message>
    <message>
        <source>Its default belongs to “{0}” now.</source>
        <translation>Seine Vorgabe gehört jetzt zu „{0}“.</translation>
    </message>
    <message>
        <source>Keep two models loaded when they fit</source>
        <translation>Zwei Modelle geladen halten, wenn sie passen</translation>
    </message>
    <message>
        <source>Keys</source>
        <translation>Tasten</translation>
    </message>
    <message>
        <source>Keys of {0}</source>
        <translation>Tasten für {0}</translation>
    </message>
    <message>
        <source>Language</source>
        <translation>Sprache</translation>
    </message>
    <message>
        <source>Light</source>
        <translation>Hell</translation>
    </message>
    <message>
        <source>Motion</source>
        <translation>Bewegung</translation>
    </message>
    <message>
        <source>Names a chat after its first answer, when nothing else is asked; else its first line is its name</source>
        <translation>Benennt einen Chat nach seiner ersten Antwort, wenn sonst nichts gefragt ist; sonst heißt er nach seiner ersten Zeile</translation>
    </message>
    <message>
        <source>Never</source>
        <translation>Nie</translation>
    </message>
    <message>
        <source>Notices</source>
        <translation>Mitteilungen</translation>
    </message>
    <message>
        <source>Of what is said and written; also Ctrl and the wheel</source>
        <translation>Von Gesagtem und Geschriebenem; auch mit Strg und dem Mausrad</translation>
    </message>
    <message>
        <source>Port of the server</source>
        <translation>Port des Servers</translation>
    </message>
    <message>
        <source>Programs on this machine that have the token use the model, beside the chats (OpenAI's API)</source>
        <translation>Programme auf diesem Rechner, die den Schlüssel haben, nutzen das Modell neben den Chats (API von OpenAI)</translation>
    </message>
    <message>
        <source>Reduced</source>
        <translation>Reduziert</translation>
    </message>
    <message>
        <source>Search settings and keys</source>
        <translation>Einstellungen und Tasten durchsuchen</translation>
    </message>
    <message>
        <source>Send with</source>
        <translation>Senden mit</translation>
    </message>
    <message>
        <source>Server for other programs</source>
        <translation>Server für andere Programme</translation>
    </message>
    <message>
        <source>Settings</source>
        <translation>Einstellungen</translation>
    </message>
    <message>
        <source>Takes effect at the next start</source>
        <translation>Gilt ab dem nächsten Start</translation>
    </message>
    <message>
        <source>Tell when an answer is ready while another window is in front</source>
        <translation>Melden, wenn eine Antwort fertig ist, während ein anderes Fenster vorn ist</translation>
    </message>
    <message>
        <source>The other one begins a new line</source>
        <translation>Die andere Taste beginnt eine neue Zeile</translation>
    </message>
    <message>
        <source>Theme</source>
        <translation>Farbschema</translation>
    </message>
    <message>
        <source>Titles by the model</source>
        <translation>Titel vom Modell</translation>
    </message>
    <message>
        <source>What such a program needs to reach the server</source>
        <translation>Was ein solches Programm braucht, um den Server zu erreichen</translation>
    </message>
    <message>
        <source>Whether things glide to their places</source>
        <translation>Ob Dinge an ihren Platz gleiten</translation>
    </message>
    <message>
        <source>Zoom</source>
        <translation>Zoom</translation>
    </message>
    <message>
        <source>{0} belongs to “{1}” already: take it from there first.</source>
        <translation>{0} gehört schon zu „{1}“: Nehmen Sie es erst dort weg.</translation>
    </message>
    <message>
        <source>{0}: back to the default</source>
        <translation>{0}: zurück zur Vorgabe</translation>
    </message>
</context>
<context>
    <name>Sidebar</name>
    <message>
        <source>Chats</source>
        <translation>Chats</translation>
    </message>
    <message>
        <source>Collapse the sidebar (Ctrl+B)</source>
        <translation>Seitenleiste einklappen (Strg+B)</translation>
    </message>
    <message>
        <source>Light or dark</source>
        <translation>Hell oder dunkel</translation>
    </message>
    <message>
        <source>New chat</source>
        <translation>Neuer Chat</translation>
    </message>
    <message>
        <source>New chat (Ctrl+T)</source>
        <translation>Neuer Chat (Strg+T)</translation>
    </message>
    <message>
        <source>Older</source>
        <translation>Älter</translation>
    </message>
    <message>
        <source>Pinned</source>
        <translation>Angeheftet</translation>
    </message>
    <message>
        <source>Previous 7 days</source>
        <translation>Letzte 7 Tage</translation>
    </message>
    <message>
        <source>Search</source>
        <translation>Suchen</translation>
    </message>
    <message>
        <source>Search all chats</source>
        <translation>Alle Chats durchsuchen</translation>
    </message>
    <message>
        <source>Settings</source>
        <translation>Einstellungen</translation>
    </message>
    <message>
        <source>Sidebar</source>
        <translation>Seitenleiste</translation>
    </message>
    <message>
        <source>Today</source>
        <translation>Heute</translation>
    </message>
    <message>
        <source>Yesterday</source>
        <translation>Gestern</translation>
    </message>
    <message>
        <source>Your chats will stand here.</source>
        <translation>Hier werden Ihre Chats stehen.</translation>
    </message>
</context>
<context>
    <name>States</name>
    <message>
        <source>Closed</source>
        <translation>Geschlossen</translation>
    </message>
    <message>
        <source>Failed</source>
        <translation>Fehlgeschlagen</translation>
    </message>
    <message>
        <source>New answer</source>
        <translation>Neue Antwort</translation>
    </message>
    <message>
        <source>Not loaded; the next message loads it</source>
        <translation>Nicht geladen; die nächste Nachricht lädt es</translation>
    </message>
    <message>
        <source>Paused</source>
        <translation>Pausiert</translation>
    </message>
    <message>
        <source>Queued</source>
        <translation>Wartet</translation>
    </message>
    <message>
        <source>Queued, {0} in line</source>
        <translation>Wartet an {0} Stelle</translation>
    </message>
    <message>
        <source>Ready</source>
        <translation>Bereit</translation>
    </message>
    <message>
        <source>Seat {0}</source>
        <translation>Platz {0}</translation>
    </message>
    <message>
        <source>Seat {0}  ·  reading {1:,} tokens, {2:.0%}</source>
        <translation>Platz {0}  ·  liest {1:,} Token, {2:.0%}</translation>
    </message>
    <message>
        <source>The engine has stopped</source>
        <translation>Die Engine ist stehen geblieben</translation>
    </message>
    <message>
        <source>Waits for the model: {0}</source>
        <translation>Wartet auf das Modell: {0}</translation>
    </message>
    <message>
        <source>decode</source>
        <translation>schreibt</translation>
    </message>
    <message>
        <source>failed</source>
        <translation>fehlgeschlagen</translation>
    </message>
    <message>
        <source>new answer</source>
        <translation>neue Antwort</translation>
    </message>
    <message>
        <source>prefill</source>
        <translation>liest</translation>
    </message>
    <message>
        <source>queued</source>
        <translation>wartet</translation>
    </message>
    <message>
        <source>starts in about {0}</source>
        <translation>beginnt in etwa {0}</translation>
    </message>
</context>
<context>
    <name>TabMenu</name>
    <message>
        <source>Always first</source>
        <translation>Immer zuerst</translation>
    </message>
    <message>
        <source>Automatic: first while it is in view</source>
        <translation>Selbsttätig: zuerst, solange er zu sehen ist</translation>
    </message>
    <message>
        <source>Behind the one in view</source>
        <translation>Nach dem, der zu sehen ist</translation>
    </message>
    <message>
        <source>Close</source>
        <translation>Schließen</translation>
    </message>
    <message>
        <source>Close others</source>
        <translation>Andere schließen</translation>
    </message>
    <message>
        <source>Delete chat</source>
        <translation>Chat löschen</translation>
    </message>
    <message>
        <source>Only when nobody else waits</source>
        <translation>Nur wenn sonst niemand wartet</translation>
    </message>
    <message>
        <source>Priority</source>
        <translation>Vorrang</translation>
    </message>
    <message>
        <source>Stop</source>
        <translation>Anhalten</translation>
    </message>
</context>
<context>
    <name>TabRow</name>
    <message>
        <source>Dashboard (Ctrl+D)</source>
        <translation>Dashboard (Strg+D)</translation>
    </message>
    <message>
        <source>New chat (Ctrl+T)</source>
        <translation>Neuer Chat (Strg+T)</translation>
    </message>
    <message>
        <source>Parameters (Ctrl+Shift+B)</source>
        <translation>Parameter (Strg+Umschalt+B)</translation>
    </message>
</context>
<context>
    <name>TabStrip</name>
    <message>
        <source>Chats</source>
        <translation>Chats</translation>
    </message>
    <message>
        <source>seat {0}</source>
        <translation>Platz {0}</translation>
    </message>
</context>
<context>
    <name>Thought</name>
    <message>
        <source>Thinking…</source>
        <translation>Denkt nach …</translation>
    </message>
    <message>
        <source>Thought for {0}</source>
        <translation>{0} nachgedacht</translation>
    </message>
    <message>
        <source>Thoughts</source>
        <translation>Gedanken</translation>
    </message>
</context>
<context>
    <name>TranscriptView</name>
    <message>
        <source>Conversation</source>
        <translation>Gespräch</translation>
    </message>
</context>
<context>
    <name>Unfinished</name>
    <message>
        <source>Go on</source>
        <translation>Fortsetzen</translation>
    </message>
    <message>
        <source>Go on with all</source>
        <translation>Alle fortsetzen</translation>
    </message>
    <message>
        <source>Leave as it is</source>
        <translation>So lassen</translation>
    </message>
    <message>
        <source>One answer was queued or being written when Omnibus ended.</source>
        <translation>Eine Antwort wartete oder wurde geschrieben, als Omnibus endete.</translation>
    </message>
    <message>
        <source>{0} answers were queued or being written when Omnibus ended.</source>
        <translation>{0} Antworten warteten oder wurden geschrieben, als Omnibus endete.</translation>
    </message>
</context>
</TS>
