# Writes OUTPUT: the function FUNCTION, which gives the files FILES below FOLDER by name, as
# builtin_templates() of submit/template/render.h does.
set(text "#include \"submit/template/render.h\"\n\nnamespace dtrain {\nconst std::vector<BuiltinTemplate>& ${FUNCTION}();\n\nconst std::vector<BuiltinTemplate>& ${FUNCTION}() {\n  static const std::vector<BuiltinTemplate> all = {\n")
foreach(file IN LISTS FILES)
  file(READ ${FOLDER}/${file} content)
  string(APPEND text "    {\"${file}\", R\"__template__(${content})__template__\"},\n")
endforeach()
string(APPEND text "  };\n  return all;\n}\n} // namespace dtrain\n")
file(WRITE ${OUTPUT} "${text}")
