# Writes OUTPUT: builtin_templates() of submit/render.h, from the TEMPLATES below FOLDER.
set(text "#include \"submit/render.h\"\n\nnamespace dtrain {\nconst std::vector<BuiltinTemplate>& builtin_templates() {\n  static const std::vector<BuiltinTemplate> all = {\n")
foreach(template IN LISTS TEMPLATES)
  file(READ ${FOLDER}/${template} content)
  string(APPEND text "    {\"${template}\", R\"__template__(${content})__template__\"},\n")
endforeach()
string(APPEND text "  };\n  return all;\n}\n} // namespace dtrain\n")
file(WRITE ${OUTPUT} "${text}")
