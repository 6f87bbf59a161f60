// What bin/dtrain and bin/dtrain-trainer of the tarball are: it starts lib/dtrain/NAME.
//
// Programs that were linked on this machine need its glibc or a later one. Where the host's is older, the
// program is started through the loader that lies beside it, with the glibc of the machine that made the
// tarball; else by the host's own, so that the host's libraries (libcurl, Open MPI, CUDA's driver) find the
// glibc that they were made for.
//
// It must itself start on any glibc: it is linked without crt1.o, whose __libc_start_main is of 2.34, and
// calls only what glibc has had since 2.2.5.
#include <errno.h>
#include <gnu/libc-version.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FOLDER "/../lib/dtrain/"
#define LOADER "ld-linux-x86-64.so.2"

static char self[PATH_MAX];
static char folder[PATH_MAX + sizeof FOLDER];
static char program[2 * PATH_MAX];
static char loader[PATH_MAX + sizeof FOLDER + sizeof LOADER];

static int host_is_older(void) {
  const char* version = gnu_get_libc_version(); // "2.31"
  char* minor = NULL;
  const long major = strtol(version, &minor, 10);
  return major < __GLIBC__ || (major == __GLIBC__ && *minor == '.' &&
                               strtol(minor + 1, NULL, 10) < __GLIBC_MINOR__);
}

static void append(char* text, size_t room, const char* more) {
  const size_t length = strlen(text);
  snprintf(text + length, room - length, "%s", more); // NOLINT(clang-analyzer-security.*)
}

static int fail(const char* path) {
  fprintf(stderr, "dtrain: cannot start %s: %s; unpack the tarball again\n", path, strerror(errno));
  fflush(stderr);
  return 127;
}

static int launch(int argc, char** argv, char** env) {
  if (readlink("/proc/self/exe", self, sizeof self - 1) < 0) {
    return fail("/proc/self/exe");
  }
  char* slash = strrchr(self, '/');
  append(folder, sizeof folder, self);
  folder[slash - self] = '\0';
  append(folder, sizeof folder, FOLDER);
  append(program, sizeof program, folder);
  append(program, sizeof program, slash + 1);
  if (!host_is_older()) {
    argv[0] = self;
    execve(program, argv, env);
    return fail(program);
  }
  append(loader, sizeof loader, folder);
  append(loader, sizeof loader, LOADER);
  // Instead of LD_LIBRARY_PATH, which thus comes after.
  const char* more = getenv("LD_LIBRARY_PATH");
  const size_t room = strlen(folder) + 1 + (more == NULL ? 0 : strlen(more)) + 1;
  char* libraries = malloc(room);
  char** words = malloc(sizeof(char*) * ((size_t)argc + 7));
  if (libraries == NULL || words == NULL) {
    return fail(program);
  }
  snprintf(libraries, room, more == NULL ? "%s" : "%s:%s", folder, more); // NOLINT(clang-analyzer-security.*)
  size_t count = 0;
  words[count++] = loader;
  words[count++] = "--argv0";
  words[count++] = self;
  words[count++] = "--library-path";
  words[count++] = libraries;
  words[count++] = program;
  for (int word = 1; word < argc; ++word) {
    words[count++] = argv[word];
  }
  words[count] = NULL;
  execve(loader, words, env);
  return fail(loader);
}

// As the kernel leaves the stack: argc, argv, NULL, the environment, NULL. By then the loader has made the
// C library ready.
__attribute__((used)) static void begin(long* stack) {
  const int argc = (int)stack[0];
  char** argv = (char**)(stack + 1);
  _exit(launch(argc, argv, argv + argc + 1));
}

__asm__(".globl _start\n"
        "_start:\n"
        "  xor %ebp, %ebp\n"
        "  mov %rsp, %rdi\n"
        "  and $-16, %rsp\n"
        "  call begin\n"
        "  hlt\n");
