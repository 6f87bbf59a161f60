#include "submit/errors.h"
