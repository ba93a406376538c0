#!/usr/bin/env bash
# Unpack nsys 2023.4, as Debian packages it, into a folder:
#
#     scripts/install-nsys.sh .cache/nsys     then .cache/nsys/bin/nsys is a working nsys
#
# For Debian 12 and newer on x86-64, as root. It needs no GPU: there it records CPU threads and NVTX
# ranges, and exports any recording. Nothing is installed but libssh, which nsys loads, where that
# is missing. Debian carries this nsys from 13 (trixie) on, in non-free; the machine's own package
# sources stay as they are.
set -euo pipefail

RELEASE=trixie
PACKAGES=(nsight-systems nsight-systems-target)
# Newer releases name it .pgp.
KEYRING=/usr/share/keyrings/debian-archive-keyring.gpg
[ -r "$KEYRING" ] || KEYRING=${KEYRING%.gpg}.pgp
TRIPLET=x86_64-linux-gnu

die() {
    echo "install-nsys: $*" >&2
    exit 1
}

check_machine() {
    [ "$(uname -s) $(uname -m)" = "Linux x86_64" ] || die "nsys is packaged for Linux on x86-64 only; this is $(uname -sm)"
    for tool in apt-get dpkg; do
        command -v "$tool" > /dev/null || die "there is no $tool: this is not Debian; install Nsight Systems from NVIDIA instead"
    done
    [ -r "$KEYRING" ] || die "there is no $KEYRING to check the packages with; install debian-archive-keyring"
    [ "$(id -u)" -eq 0 ] || die "run it as root: libssh may have to be installed"
}

# The mirror that the machine uses already, or else Debian's own.
mirror() {
    local found
    found=$(sed -nE 's/^(URIs:|deb( \[[^]]*\])?) *(https?:[^ ]*\/debian\/?)( .*)?$/\3/p' \
        /etc/apt/sources.list.d/*.sources /etc/apt/sources.list 2> /dev/null | head -1) || true
    echo "${found:-http://deb.debian.org/debian}"
}

# apt-get with package lists of its own, so that those of the machine stay untouched.
own_apt() {
    apt-get -qq \
        -o Dir::Etc::sourcelist="$work/sources.list" -o Dir::Etc::sourceparts=- \
        -o Dir::State::Lists="$work/lists" -o Dir::Cache="$work/cache" \
        -o APT::Sandbox::User=root "$@"
}

download() {
    mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$work/debs"
    echo "deb [signed-by=$KEYRING] $(mirror) $RELEASE main non-free" > "$work/sources.list"
    own_apt update || die "cannot read the package list of $RELEASE from $(mirror)"
    (cd "$work/debs" && own_apt download "${PACKAGES[@]}") || die "cannot download ${PACKAGES[*]}"
}

unpack() {
    local deb
    mkdir -p "$1"
    for deb in "$work"/debs/*.deb; do
        dpkg -x "$deb" "$1/root"
    done
}

# nsys looks for its second half beside itself, where the packages would have put links.
join_halves() {
    local host="$1/root/usr/lib/nsight-systems/host-linux-x64"
    local target="$1/root/usr/lib/$TRIPLET/nsight-systems"
    ln -sfn ../../nsight-systems/host-linux-x64 "$target/host-linux-x64"
    ln -sfn "/usr/lib/$TRIPLET/libssh.so.4" "$host/libssh.so"
    mkdir -p "$1/bin"
    ln -sfn "../root/usr/lib/$TRIPLET/nsight-systems/target-linux-x64/nsys" "$1/bin/nsys"
    # The scripts of `nsys stats` are looked for in the first half, and packaged in the second.
    cp -n "$target"/target-linux-x64/python/lib/*.py "$host/python/lib/" 2> /dev/null || true
}

install_libssh() {
    [ -e "/usr/lib/$TRIPLET/libssh.so.4" ] && return
    { apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends libssh-4; } \
        < /dev/null > /dev/null || die "cannot install libssh-4, without which nsys does not start"
}

[ $# -eq 1 ] || die "usage: install-nsys.sh FOLDER"
check_machine
# What is replaced has to be an nsys of ours, or nothing.
[ -x "$1/bin/nsys" ] || rmdir "$1" 2> /dev/null || [ ! -e "$1" ] || die "$1 exists and holds something else"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
download
install_libssh
# Moved into place when it works: a folder that is there is a whole installation.
unpack "$work/nsys"
join_halves "$work/nsys"
"$work/nsys/bin/nsys" --version > /dev/null || die "the unpacked nsys does not start"
mkdir -p "$(dirname "$1")"
rm -rf "$1"
mv "$work/nsys" "$1"
"$1/bin/nsys" --version
