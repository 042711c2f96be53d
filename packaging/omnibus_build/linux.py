"""What Linux users get: a .deb, and one file that runs without being installed (an AppImage where its tool is there, else an archive).

Builds trees under the work folder. The bundle's files are linked, not copied, where the file system can.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

from omnibus_build.bundle import NAME, Plan
from omnibus_build.icons import SIZES
from omnibus_build.sizes import bytes_of
from omnibus_build.smoke import _link as link_or_copy

PACKAGE = "omnibus-chat"
OPT = f"opt/{NAME}"
# Found by asking the loader what the bundle needs beside itself; the glibc is the one that Qt's wheels were built for.
DEPENDS = "libc6 (>= 2.34), libegl1, libgl1, libxcb1, libwayland-client0, libwayland-cursor0"
RECOMMENDS = "libwayland-egl1, fontconfig-config"
MARK = b"AI\x02"  # at the 8th byte, by which the AppImage specification has its second type known
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def control(plan: Plan, installed_bytes: int) -> str:
    """The package's description for dpkg."""
    return f"""Package: {PACKAGE}
Version: {plan.version}
Architecture: {ARCHITECTURES[platform.machine()]}
Maintainer: The Omnibus authors <omnibus@localhost>
Installed-Size: {installed_bytes // 1024}
Depends: {DEPENDS}
Recommends: {RECOMMENDS}
Section: utils
Priority: optional
Description: many chats at once with one model on your own machine
 Omnibus runs a local language model for many chats at the same time, and
 shows the batch that they ride in. A small starter model is inside: it
 answers at the first start, without a network.
"""


def desktop_files(plan: Plan, tree: Path, program: str) -> None:
    """Menu entry, icons, MIME types and the store's description, under `tree`/usr/share."""
    source = plan.root / "packaging" / "linux"
    share = tree / "usr" / "share"
    entry = (source / "omnibus.desktop").read_text(encoding="utf-8").replace("@PROGRAM@", program)
    put(share / "applications" / f"{NAME}.desktop", entry)
    put(share / "mime" / "packages" / f"{NAME}.xml", (source / "omnibus-mime.xml").read_text(encoding="utf-8"))
    about = (source / "omnibus.metainfo.xml").read_text(encoding="utf-8").replace("@VERSION@", plan.version)
    put(share / "metainfo" / "io.github.omnibus.Omnibus.metainfo.xml", about)
    for size in SIZES:
        place = share / "icons" / "hicolor" / f"{size}x{size}" / "apps" / f"{NAME}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(plan.icons / f"{size}.png", place)
    place = share / "icons" / "hicolor" / "scalable" / "apps" / f"{NAME}.svg"
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(plan.root / "resources" / "icons" / "omnibus.svg", place)


def put(path: Path, text: str, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)


def fresh(path: Path) -> Path:
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    return path


def make_deb(plan: Plan) -> Path:
    """The Debian package: /opt/omnibus, a command, a menu entry. Removing it leaves nothing but the person's own data."""
    tree = fresh(plan.work / "deb")
    shutil.copytree(plan.bundle, tree / OPT, symlinks=True, copy_function=link_or_copy)
    (tree / "usr" / "bin").mkdir(parents=True)
    (tree / "usr" / "bin" / NAME).symlink_to(f"/{OPT}/{NAME}")
    desktop_files(plan, tree, NAME)
    put(tree / "usr" / "share" / "doc" / PACKAGE / "copyright", copyright_text(plan))
    put(tree / "DEBIAN" / "control", control(plan, bytes_of(tree)))
    for path in [tree, *tree.rglob("*")]:
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o755)
    target = plan.output / f"{PACKAGE}_{plan.version}_{ARCHITECTURES[platform.machine()]}.deb"
    # Level 12 of zstd: a tenth larger than xz at its best, in a twentieth of the time, for the packer and for the person.
    command = ["dpkg-deb", "--root-owner-group", "-Zzstd", "-z12", "--build", str(tree), str(target)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return target


def copyright_text(plan: Plan) -> str:
    """Where the terms of everything are, and our own."""
    ours = (plan.root / "NOTICE").read_text(encoding="utf-8")
    return f"{ours}\nThe licences of everything in this package: /{OPT}/internal/papers/licences\n"


def make_portable(plan: Plan) -> list[Path]:
    """An AppImage, or where its parts are missing a plain archive of the same folder."""
    tree = fresh(plan.work / "Omnibus.AppDir")
    shutil.copytree(plan.bundle, tree / OPT, symlinks=True, copy_function=link_or_copy)
    desktop_files(plan, tree, NAME)
    shutil.copyfile(tree / "usr" / "share" / "applications" / f"{NAME}.desktop", tree / f"{NAME}.desktop")
    shutil.copyfile(plan.icons / "256.png", tree / f"{NAME}.png")
    (tree / ".DirIcon").symlink_to(f"{NAME}.png")
    put(tree / "AppRun", (plan.root / "packaging" / "linux" / "AppRun").read_text(encoding="utf-8"), 0o755)
    target = plan.output / f"{plan.stem}.AppImage"
    if squash(tree, target):
        return [target]
    archive = plan.output / f"{plan.stem}.tar.zst"
    pack = ["tar", "--sort=name", "--owner=0", "--group=0", "-C", str(plan.bundle.parent), "-cf", "-", NAME]
    with subprocess.Popen(pack, stdout=subprocess.PIPE) as tar:
        subprocess.run(["zstd", "-q", "-f", "-12", "-T0", "-o", str(archive)], stdin=tar.stdout, check=True)
    if tar.returncode:
        raise subprocess.CalledProcessError(tar.returncode, pack)
    return [archive]


def squash(tree: Path, target: Path) -> bool:
    """Make the AppImage: by appimagetool, or from its runtime (the file APPIMAGE_RUNTIME) and a squashfs. False if a part is missing."""
    environment = {**os.environ, "ARCH": platform.machine()}
    given = os.environ.get("APPIMAGE_RUNTIME", "")
    if given and (fault := runtime_fault(Path(given))):
        raise SystemExit(f"APPIMAGE_RUNTIME: {fault}. packaging/README.md says where one comes from; without the variable none is made.")
    if tool := shutil.which("appimagetool"):
        runtime = ["--runtime-file", given] if given else []
        subprocess.run([tool, "--comp", "zstd", *runtime, str(tree), str(target)], env=environment, check=True)
        check_image(target)
        return True
    squasher = shutil.which("mksquashfs")
    if not given or squasher is None:
        missing = [] if given else ["APPIMAGE_RUNTIME names no runtime"]
        missing += [] if squasher else ["mksquashfs is not installed (Debian's squashfs-tools)"]
        print(f"  no AppImage, a plain archive instead: appimagetool is not installed, and {' and '.join(missing)}")
        return False
    image = target.with_suffix(".squashfs")
    image.unlink(missing_ok=True)
    options = ["-root-owned", "-noappend", "-quiet", "-no-progress", "-comp", "zstd", "-Xcompression-level", "12"]
    subprocess.run([squasher, str(tree), str(image), *options], check=True, stdout=subprocess.DEVNULL)
    with target.open("wb") as file:
        runtime_bytes = Path(given).read_bytes()
        file.write(runtime_bytes[:8] + MARK + runtime_bytes[8 + len(MARK) :])  # a runtime that was just built has no mark yet
        with image.open("rb") as body:
            shutil.copyfileobj(body, file, 4 << 20)
    image.unlink()
    target.chmod(0o755)
    check_image(target)
    return True


def runtime_fault(runtime: Path) -> str | None:
    """Why a file is no runtime of AppImages for this machine."""
    if not runtime.is_file():
        return f"there is no file {runtime}"
    start = runtime.read_bytes()[:20]
    if start[:4] != b"\x7fELF":
        return f"{runtime} is no program, so no runtime of AppImages"
    machines = {"x86_64": 62, "aarch64": 183}
    if int.from_bytes(start[18:20], "little") != machines.get(platform.machine()):
        return f"{runtime} is for another processor than {platform.machine()}"
    return None


def check_image(image: Path) -> None:
    """Have the image unpack one file of itself: its runtime runs here, and finds and reads the file system behind it."""
    with tempfile.TemporaryDirectory() as folder:
        found = subprocess.run([str(image), "--appimage-extract", "AppRun"], cwd=folder, capture_output=True, text=True, check=False)
        if found.returncode or not (Path(folder) / "squashfs-root" / "AppRun").is_file():
            raise SystemExit(f"{image.name} does not unpack itself: {(found.stderr or found.stdout).strip()[-300:]}")
