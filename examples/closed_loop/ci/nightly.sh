#!/bin/sh
# At night: search, and leave a branch with the diff when a better prompt was found.
# Needs a clean checkout. The last line says which branch there is, if there is one.
set -eu
cd "$(dirname "$0")/.."

code=0
promptgraft optimize --quiet || code=$?
if [ "$code" -eq 1 ]; then
  echo "nothing beat the prompt; no branch"
  exit 0
fi
[ "$code" -eq 0 ] || exit "$code"

# The gate comes before the branch. What passes is the baseline of the next change.
promptgraft eval --run latest --baseline baseline.json --save-baseline baseline.json || code=$?
if [ "$code" -eq 1 ]; then
  echo "the winner does not pass the gate; no branch"
  exit 0
fi
[ "$code" -eq 0 ] || exit "$code"
promptgraft apply --to-source

run=$(ls runs | tail -n 1)
git switch --quiet --create "promptgraft/$run"
git add prompts baseline.json
{ echo "Better prompt from run $run" && echo && cat "runs/$run/summary.md"; } |
  git commit --quiet --file -
if [ -n "${GITHUB_OUTPUT:-}" ]; then
  echo "branch=promptgraft/$run" >>"$GITHUB_OUTPUT"
fi
echo "branch promptgraft/$run"
