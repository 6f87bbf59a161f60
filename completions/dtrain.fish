# fish completion for dtrain. Says nothing when dtrain has nothing to say.

function __dtrain_complete
    set -l words (commandline -opc) (commandline -ct)
    set -l out ($words[1] __complete fish $words[2..-1] 2>/dev/null)
    or return
    test (count $out) -gt 0; or return
    set -l directives (string split ' ' -- $out[1])
    test (count $out) -gt 1; and printf '%s\n' $out[2..-1]

    set -l typed (commandline -ct)
    set -l flag (string match -r -- '^--[^=]*=' $typed)
    set -l value (string replace -r -- '^--[^=]*=' '' $typed)
    if contains files $directives
        printf "$flag%s\n" (__fish_complete_path $value)
    else if contains directories $directives
        printf "$flag%s\n" (__fish_complete_directories $value '')
    end
end

complete -c dtrain -f -a '(__dtrain_complete)'
