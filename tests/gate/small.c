/* small WAY PATH [WAY PATH]...: a 32-bit program with no library, for machines that have none. Each
 * path is used through one call of the 32-bit table; the lines are those of gate-files. */
typedef unsigned int word;

enum {
  NR_EXIT = 1,
  NR_FORK = 2,
  NR_READ = 3,
  NR_WRITE = 4,
  NR_OPEN = 5,
  NR_CLOSE = 6,
  NR_EXECVE = 11,
  NR_ACCESS = 33,
  NR_WAIT4 = 114,
  NR_STATFS = 99,
  NR_STAT64 = 195,
  NR_LSTAT64 = 196,
  NR_LGETXATTR = 230,
  NR_LLISTXATTR = 233,
  NR_GETXATTRAT = 464,
  NR_LISTXATTRAT = 465,
  NR_FILE_GETATTR = 468,
#if defined(__i386__)
  NR_STATFS64 = 268,
  NR_INOTIFY_INIT = 291,
  NR_INOTIFY_ADD_WATCH = 292,
  NR_OPENAT = 295,
  NR_FSTATAT64 = 300,
  NR_READLINKAT = 305,
  NR_SOCKET = 359,
  NR_CONNECT = 362,
  NR_STATX = 383,
#else /* arm */
  NR_STATFS64 = 266,
  NR_SOCKET = 281,
  NR_CONNECT = 283,
  NR_INOTIFY_INIT = 316,
  NR_INOTIFY_ADD_WATCH = 317,
  NR_OPENAT = 322,
  NR_FSTATAT64 = 327,
  NR_READLINKAT = 332,
  NR_STATX = 397,
#endif
};

enum { AT_FDCWD = -100, O_PATH = 010000000, IN_MODIFY = 2 };

struct address {
  unsigned short family;
  char path[108];
};

#if defined(__i386__)
/* The sixth argument has the register that the compiler may keep its frame in. */
static int call(word number, word a, word b, word c, word d, word e, word f) {
  int result;
  __asm__ volatile("pushl %7\n  pushl %%ebp\n  movl 4(%%esp), %%ebp\n  int $0x80\n"
                   "  popl %%ebp\n  addl $4, %%esp"
                   : "=a"(result)
                   : "a"(number), "b"(a), "c"(b), "d"(c), "S"(d), "D"(e), "m"(f)
                   : "memory");
  return result;
}
#else
static int call(word number, word a, word b, word c, word d, word e, word f) {
  register word r7 __asm__("r7") = number, r0 __asm__("r0") = a, r1 __asm__("r1") = b;
  register word r2 __asm__("r2") = c, r3 __asm__("r3") = d, r4 __asm__("r4") = e;
  register word r5 __asm__("r5") = f;
  __asm__ volatile("svc #0"
                   : "+r"(r0)
                   : "r"(r7), "r"(r1), "r"(r2), "r"(r3), "r"(r4), "r"(r5)
                   : "memory");
  return (int)r0;
}
#endif

#define PLAIN(number, a, b, c) call(number, (word)(a), (word)(b), (word)(c), 0, 0, 0)
#define FIVE(number, a, b, c, d, e)                                                                \
  call(number, (word)(a), (word)(b), (word)(c), (word)(d), (word)(e), 0)

static word length(const char *text) {
  word count = 0;
  while (text[count])
    count++;
  return count;
}

static void print(const char *text) {
  PLAIN(NR_WRITE, 1, text, length(text));
}

static int same(const char *a, const char *b) {
  while (*a && *a == *b) {
    a++;
    b++;
  }
  return *a == *b;
}

/* Shows the first line, as what the call gave. */
static int show(int fd) {
  static char text[200];
  if (fd < 0)
    return fd;
  int got = PLAIN(NR_READ, fd, text, sizeof text - 1);
  PLAIN(NR_CLOSE, fd, 0, 0);
  if (got < 0)
    return got;
  for (int i = 0; i < got; i++) {
    if (text[i] == '\n')
      got = i;
  }
  text[got] = '\0';
  print(text);
  return 1;
}

static int do_open(const char *path) {
  return show(PLAIN(NR_OPEN, path, 0, 0));
}

static int do_openat(const char *path) {
  return show(PLAIN(NR_OPENAT, AT_FDCWD, path, 0));
}

static int do_path_only(const char *path) {
  return PLAIN(NR_OPENAT, AT_FDCWD, path, O_PATH);
}

static int do_stat(const char *path) {
  static char status[128];
  return PLAIN(NR_STAT64, path, status, 0);
}

/* What is told, byte by byte. */
static unsigned char told[160];

static int show_told(int result, word count) {
  static const char digits[] = "0123456789abcdef";
  char text[2 * sizeof told + 1];
  for (word i = 0; i < count; i++) {
    text[2 * i] = digits[told[i] >> 4];
    text[2 * i + 1] = digits[told[i] & 15];
  }
  for (word i = 0; i < sizeof told; i++)
    told[i] = 0;
  text[2 * count] = '\0';
  if (result >= 0)
    print(text);
  return result;
}

static int do_whole_stat(const char *path) {
  return show_told(PLAIN(NR_STAT64, path, told, 0), sizeof told);
}

static int do_whole_lstat(const char *path) {
  return show_told(PLAIN(NR_LSTAT64, path, told, 0), sizeof told);
}

static int do_whole_fstatat(const char *path) {
  return show_told(FIVE(NR_FSTATAT64, AT_FDCWD, path, told, 0, 0), sizeof told);
}

/* The kind of file system, its block size and the number of all blocks; others change. */
static int do_statfs(const char *path) {
  return show_told(PLAIN(NR_STATFS, path, told, 0), 12);
}

static int do_statfs64(const char *path) {
  return show_told(PLAIN(NR_STATFS64, path, 84, told), 16);
}

static int do_lgetxattr(const char *path) {
  return show_told(FIVE(NR_LGETXATTR, path, "user.test", told, 20, 0), 24);
}

static int do_getxattrat(const char *path) {
  const struct {
    unsigned long long value;
    word size, flags;
  } room = {(word)told, 20, 0};
  return show_told(call(NR_GETXATTRAT, (word)AT_FDCWD, (word)path, 0, (word) "user.test",
                        (word)&room, sizeof room),
                   24);
}

static int do_llistxattr(const char *path) {
  return show_told(PLAIN(NR_LLISTXATTR, path, told, 40), 44);
}

static int do_listxattrat(const char *path) {
  return show_told(FIVE(NR_LISTXATTRAT, AT_FDCWD, path, 0, told, 40), 44);
}

static int do_readlinkat(const char *path) {
  return FIVE(NR_READLINKAT, AT_FDCWD, path, told, 40, 0);
}

static int do_file_getattr(const char *path) {
  return show_told(FIVE(NR_FILE_GETATTR, AT_FDCWD, path, told, 24, 0), 28);
}

static int do_statx(const char *path) {
  static char status[512];
  return FIVE(NR_STATX, AT_FDCWD, path, 0, 0x7ff, status);
}

static int do_access(const char *path) {
  return PLAIN(NR_ACCESS, path, 4, 0);
}

static int do_inotify(const char *path) {
  int fd = PLAIN(NR_INOTIFY_INIT, 0, 0, 0);
  return PLAIN(NR_INOTIFY_ADD_WATCH, fd, path, IN_MODIFY);
}

static void fill(struct address *address, const char *path) {
  address->family = 1;
  for (word i = 0; i < sizeof address->path; i++) {
    address->path[i] = path[i];
    if (!path[i])
      return;
  }
}

static int do_connect(const char *path) {
  static struct address address;
  int fd = PLAIN(NR_SOCKET, 1, 1, 0);
  fill(&address, path);
  return PLAIN(NR_CONNECT, fd, &address, sizeof address);
}

static int do_execute(const char *path) {
  const char *argv[] = {path, "argument", 0}, *none[] = {0};
  int status = 0, pid = PLAIN(NR_FORK, 0, 0, 0);
  if (pid == 0) {
    int result = PLAIN(NR_EXECVE, path, argv, none);
    PLAIN(NR_EXIT, -result, 0, 0);
  }
  PLAIN(NR_WAIT4, pid, &status, 0);
  return status == 0 ? 1 : -(status >> 8);
}

static const struct {
  const char *name;
  int (*use)(const char *path);
} ways[] = {
    {"open", do_open},
    {"openat", do_openat},
    {"path-only", do_path_only},
    {"stat", do_stat},
    {"statx", do_statx},
    {"access", do_access},
    {"inotify", do_inotify},
    {"connect", do_connect},
    {"execute", do_execute},
    {"whole-stat", do_whole_stat},
    {"whole-lstat", do_whole_lstat},
    {"whole-fstatat", do_whole_fstatat},
    {"statfs", do_statfs},
    {"statfs64", do_statfs64},
    {"lgetxattr", do_lgetxattr},
    {"getxattrat", do_getxattrat},
    {"llistxattr", do_llistxattr},
    {"listxattrat", do_listxattrat},
    {"readlinkat", do_readlinkat},
    {"file-getattr", do_file_getattr},
};

static const struct {
  int number;
  const char *name;
} errors[] = {{1, "EPERM"},      {2, "ENOENT"},      {13, "EACCES"},
              {22, "EINVAL"},    {38, "ENOSYS"},     {61, "ENODATA"},
              {75, "EOVERFLOW"}, {95, "EOPNOTSUPP"}, {111, "ECONNREFUSED"}};

static void print_error(int number) {
  for (word i = 0; i < sizeof errors / sizeof errors[0]; i++) {
    if (errors[i].number == number) {
      print(errors[i].name);
      return;
    }
  }
  print("another error");
}

static void use(const char *way, const char *path) {
  for (word i = 0; i < sizeof ways / sizeof ways[0]; i++) {
    if (!same(ways[i].name, way))
      continue;
    print(way);
    print(" ");
    int result = ways[i].use(path);
    if (result < 0)
      print_error(-result);
    print("\n");
  }
}

/* The stack at the start: the count, then the words. */
__attribute__((used)) static void start(int *stack) {
  char **argv = (char **)(stack + 1);
  for (int i = 1; i + 1 < *stack; i += 2)
    use(argv[i], argv[i + 1]);
  PLAIN(NR_EXIT, 0, 0, 0);
}

#if defined(__i386__)
__asm__(".globl _start\n_start:\n  movl %esp, %eax\n  andl $-16, %esp\n  subl $12, %esp\n"
        "  pushl %eax\n  call start\n");
#else
__asm__(".globl _start\n_start:\n  mov r0, sp\n  bic sp, sp, #15\n  bl start\n");
#endif
