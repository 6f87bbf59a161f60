# bash completion for dtrain. Says nothing when dtrain has nothing to say.

_dtrain() {
  COMPREPLY=()
  # Bash cuts words at '=' and ':' as well; put together again what stands without a space between.
  local line=${COMP_LINE:0:COMP_POINT} i word space
  local -a words=()
  for ((i = 0; i <= COMP_CWORD; ++i)); do
    word=${COMP_WORDS[i]}
    space=${line%%[![:space:]]*}
    line=${line#"$space"}
    [[ $line == "$word"* ]] || word=$line
    line=${line#"$word"}
    if [[ ${#words[@]} -eq 0 || -n $space ]]; then
      words+=("$word")
    else
      words[${#words[@]} - 1]+=$word
    fi
  done
  # Nothing typed yet behind a space.
  [[ ${COMP_LINE:0:COMP_POINT} == *[[:space:]] && -z ${COMP_WORDS[COMP_CWORD]} &&
    -n ${words[${#words[@]} - 1]} ]] && words+=("")

  local out
  out=$("${words[0]/#\~/$HOME}" __complete bash "${words[@]:1}" 2>/dev/null) || return 0
  local directives=${out%%$'\n'*}
  [[ $out == *$'\n'* ]] && out=${out#*$'\n'} || out=""

  # Readline replaces only what follows the last '=' or ':' of the word.
  local typed=${words[${#words[@]} - 1]} head=""
  [[ $typed == *[=:]* && ! $typed == [\"\']* ]] && head=${typed%"${typed##*[=:]}"}

  local candidate
  while IFS= read -r candidate; do
    candidate=${candidate%%$'\t'*}
    [[ -n $candidate ]] || continue
    candidate=${candidate#"$head"}
    [[ $typed == [\"\']* ]] || printf -v candidate %q "$candidate"
    COMPREPLY+=("${candidate//\\=/=}")
  done <<<"$out"

  case " $directives " in
  *" nospace "*) compopt -o nospace 2>/dev/null ;;
  *" files "*)
    compopt -o filenames 2>/dev/null
    mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -f -- "${typed#"$head"}")
    ;;
  *" directories "*)
    compopt -o filenames 2>/dev/null
    mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -d -- "${typed#"$head"}")
    ;;
  esac
  return 0
}

complete -F _dtrain dtrain
