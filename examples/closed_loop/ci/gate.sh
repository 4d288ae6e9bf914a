#!/bin/sh
# On each change: nothing may be worse than the kept baseline.
# Ends with 1 when the prompt is worse, with 4 when the model did not answer: then run it again.
set -eu
cd "$(dirname "$0")/.."

promptgraft eval --source --fail-under 0.5 --baseline baseline.json --junit gate.xml
