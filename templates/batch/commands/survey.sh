#!/bin/sh
# survey.sh: a line each of dtrain's own folder, of where its commands are run, and of the bundled trainer, or
# an empty one.
printf '%s\n' "$XDG_STATE_HOME/dtrain" "$(pwd)" "$(command -v dtrain-trainer)"
