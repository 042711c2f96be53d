; The Windows installer, for Inno Setup 6. Compiled by packaging/build with /DVersion /DBundle /DOutput /DStem /DIcons /DRoot.
; For one person by default, without administrator rights; "for all users" is offered. Leaves chats and models alone when it goes.

#ifndef Version
  #error Compile through packaging/build, which defines Version, Bundle, Output, Stem, Icons and Root
#endif

[Setup]
AppId={{7B1F0C55-5E0B-4B7A-9C62-0A6C3C1D8E42}
AppName=Omnibus
AppVersion={#Version}
AppPublisher=The Omnibus authors
DefaultDirName={autopf}\Omnibus
DefaultGroupName=Omnibus
DisableProgramGroupPage=yes
PrivilegesRequired=lowest
PrivilegesRequiredOverridesAllowed=dialog
ArchitecturesAllowed=x64compatible
ArchitecturesInstallIn64BitMode=x64compatible
MinVersion=10.0.17763
OutputDir={#Output}
OutputBaseFilename={#Stem}-setup
SetupIconFile={#Icons}\omnibus.ico
UninstallDisplayIcon={app}\Omnibus.exe
LicenseFile={#Root}\LICENSE
Compression=lzma2/normal
SolidCompression=yes
LZMAUseSeparateProcess=yes
WizardStyle=modern
ChangesAssociations=yes
CloseApplications=yes
; The cuda flavour is more than one file may hold.
DiskSpanning={#Pos("-cuda-", Stem) > 0 ? "yes" : "no"}
#if GetEnv("SIGNTOOL") != ""
SignTool=signtool
SignedUninstaller=yes
#endif

[Languages]
Name: "en"; MessagesFile: "compiler:Default.isl"
Name: "de"; MessagesFile: "compiler:Languages\German.isl"

[Tasks]
Name: "desktopicon"; Description: "{cm:CreateDesktopIcon}"; Flags: unchecked
Name: "gguf"; Description: "Open GGUF models with Omnibus"; Flags: unchecked

[InstallDelete]
; An older version's modules must not be found beside the new ones.
Type: filesandordirs; Name: "{app}\internal"

[Files]
Source: "{#Bundle}\*"; DestDir: "{app}"; Flags: ignoreversion recursesubdirs createallsubdirs

[Icons]
Name: "{group}\Omnibus"; Filename: "{app}\Omnibus.exe"
Name: "{group}\Omnibus (safe mode)"; Filename: "{app}\Omnibus.exe"; Parameters: "--safe-mode"
Name: "{autodesktop}\Omnibus"; Filename: "{app}\Omnibus.exe"; Tasks: desktopicon

[Registry]
Root: HKA; Subkey: "Software\Classes\Omnibus.gguf"; ValueType: string; ValueData: "Language model (GGUF)"; Flags: uninsdeletekey; Tasks: gguf
Root: HKA; Subkey: "Software\Classes\Omnibus.gguf\shell\open\command"; ValueType: string; ValueData: """{app}\Omnibus.exe"" ""%1"""; Tasks: gguf
Root: HKA; Subkey: "Software\Classes\.gguf\OpenWithProgids"; ValueType: string; ValueName: "Omnibus.gguf"; ValueData: ""; Flags: uninsdeletevalue; Tasks: gguf

[Run]
Filename: "{app}\Omnibus.exe"; Description: "{cm:LaunchProgram,Omnibus}"; Flags: nowait postinstall skipifsilent
