#!/bin/sh
# Bundle the modules of a page's script into one file: scripts/bundle.sh ENTRY.js OUT.js
set -e
cd "$(dirname "$0")/.."
exec node_modules/.bin/esbuild "traceview/render/script/$1" --bundle --minify --format=iife \
	--target=es2022 --legal-comments=none --log-level=warning --outfile="$2" --allow-overwrite
