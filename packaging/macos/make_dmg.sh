#!/bin/bash
# Omnibus.app into a disk image: signed with OMNIBUS_SIGN_IDENTITY if that is set, notarised with OMNIBUS_NOTARY_PROFILE if that is.
# Usage: make_dmg.sh Omnibus.app TARGET.dmg
set -euo pipefail
app=$1 target=$2
here=$(cd "$(dirname "$0")" && pwd)
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT

if [ -n "${OMNIBUS_SIGN_IDENTITY:-}" ]; then
  # From the inside out: every library and program, then the app that seals them.
  find "$app/Contents" -type f \( -name '*.dylib' -o -name '*.so' -o -path '*/torch/bin/*' \) -print0 |
    xargs -0 -n 50 codesign --force --timestamp --options runtime --sign "$OMNIBUS_SIGN_IDENTITY"
  codesign --force --timestamp --options runtime --entitlements "$here/entitlements.plist" --sign "$OMNIBUS_SIGN_IDENTITY" "$app"
  codesign --verify --deep --strict "$app"
else
  # Apple Silicon runs nothing unsigned; an ad-hoc signature is enough for the machine it was built on.
  codesign --force --deep --entitlements "$here/entitlements.plist" --sign - "$app"
fi

cp -R "$app" "$stage/"
ln -s /Applications "$stage/Applications"
rm -f "$target"
hdiutil create -volname Omnibus -srcfolder "$stage" -format ULMO -ov "$target"

if [ -n "${OMNIBUS_SIGN_IDENTITY:-}" ]; then
  codesign --timestamp --sign "$OMNIBUS_SIGN_IDENTITY" "$target"
fi
if [ -n "${OMNIBUS_NOTARY_PROFILE:-}" ]; then
  xcrun notarytool submit "$target" --keychain-profile "$OMNIBUS_NOTARY_PROFILE" --wait
  xcrun stapler staple "$target"
fi
