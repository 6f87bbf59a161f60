// A fault that only the analyzer sees, of a file that others include: tidy.py has to find it here
// before it believes that there is none elsewhere.
int planted(const int* p);

int planted(const int* p) {
  if (p != nullptr) {
    return 0;
  }
  return *p;
}
