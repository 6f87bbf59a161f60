#include "submit/option_table.h"
