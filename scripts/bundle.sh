#!/bin/sh
# Bundle the modules of the page's script into one file: scripts/bundle.sh OUT.js
set -e
cd "$(dirname "$0")/.."
exec node_modules/.bin/esbuild traceview/render/script/main.js --bundle --minify --format=iife \
	--target=es2022 --legal-comments=none --log-level=warning --outfile="$1" --allow-overwrite
