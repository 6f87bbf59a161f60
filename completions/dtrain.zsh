#compdef dtrain
# zsh completion for dtrain. Says nothing when dtrain has nothing to say.

_dtrain() {
  local out candidate word description
  local -a typed lines matches displays
  typed=("${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}")
  out=$("${(Q)words[1]/#\~/$HOME}" __complete zsh "${typed[@]}" 2>/dev/null) || return 1
  lines=("${(@f)out}")
  local directives=" $lines[1] "
  for candidate in "${(@)lines[2,-1]}"; do
    word=${candidate%%$'\t'*}
    description=${candidate#*$'\t'}
    [[ -n $word ]] || continue
    matches+=("$word")
    displays+=("$word${description:+  -- $description}")
  done

  local -a suffix
  [[ $directives == *" nospace "* ]] && suffix=(-S '')
  local ret=1
  (( $#matches )) && compadd "${(@)suffix}" -l -d displays -a -- matches && ret=0
  if [[ $directives == *" files "* ]]; then
    compset -P '--[^=]#='
    _files && ret=0
  elif [[ $directives == *" directories "* ]]; then
    compset -P '--[^=]#='
    _files -/ && ret=0
  fi
  return ret
}

# Read as a script, it registers itself; as a function of $fpath, it completes.
if [[ $funcstack[1] == _dtrain ]]; then
  _dtrain "$@"
elif (( $+functions[compdef] )); then
  compdef _dtrain dtrain
fi
