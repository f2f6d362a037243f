/* files OP PATH [OP PATH]...: uses each path in one way, through one system call, and prints a line
 * about it: the way, and what came of it. The tests compare the lines from inside and outside. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <linux/openat2.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

static char said[8192];

static int say(const char *format, ...) __attribute__((format(printf, 1, 2)));

static int say(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(said, sizeof said, format, arguments);
  va_end(arguments);
  return 0;
}

/* The first line of an open file. */
static int show(int fd) {
  char text[200];
  if (fd < 0)
    return -1;
  ssize_t length = read(fd, text, sizeof text - 1);
  int saved = errno;
  close(fd);
  errno = saved;
  if (length < 0)
    return -1;
  text[length] = '\0';
  text[strcspn(text, "\n")] = '\0';
  return say("%s", text);
}

static int show_status(int result, const struct stat *status) {
  return result < 0 ? -1 : say("%o %lld", status->st_mode & S_IFMT, (long long)status->st_size);
}

static int parent_of(const char *path, const char **ret_name, int flags) {
  static char copy[4096];
  *ret_name = strrchr(path, '/') + 1;
  snprintf(copy, sizeof copy, "%.*s", (int)(*ret_name - path), path);
  return open(copy, O_DIRECTORY | flags);
}

/* ---- opening ---- */

static int do_open(const char *path) {
  return show((int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY));
}

static int do_old_open(const char *path) {
#ifdef SYS_open
  return show((int)syscall(SYS_open, path, O_RDONLY));
#else
  return do_open(path);
#endif
}

/* As a 32-bit program does it. */
static int do_compat_open(const char *path) {
#ifdef __x86_64__
  char *low =
      mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
  if (low == MAP_FAILED)
    return -1;
  snprintf(low, 4096, "%s", path);
  long result;
  __asm__ volatile("int $0x80"
                   : "=a"(result)
                   : "a"(5), "b"(low), "c"(O_RDONLY), "d"(0)
                   : "memory", "r8", "r9", "r10", "r11");
  munmap(low, 4096);
  if ((int)result >= 0)
    return show((int)result);
  errno = -(int)result;
  return -1;
#else
  return do_open(path);
#endif
}

#ifndef SYS_memfd_secret
#define SYS_memfd_secret 447
#endif

/* The path is where nobody but the kernel can read it. */
static int do_closed_memory(const char *path) {
  int fd = (int)syscall(SYS_memfd_secret, 0);
  if (fd < 0 || ftruncate(fd, 4096) < 0)
    return -1;
  char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (page == MAP_FAILED)
    return -1;
  snprintf(page, 4096, "%s", path);
  return do_open(page);
}

static int do_openat(const char *path) {
  const char *name;
  int folder = parent_of(path, &name, O_PATH);
  return folder < 0 ? -1 : show(openat(folder, name, O_RDONLY));
}

static int do_openat2(const char *path) {
  struct open_how how = {.flags = O_RDONLY};
  return show((int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how));
}

static int do_in_root(const char *path) {
  const char *name;
  char absolute[300];
  int folder = parent_of(path, &name, O_PATH);
  struct open_how how = {.flags = O_RDONLY, .resolve = RESOLVE_IN_ROOT};
  snprintf(absolute, sizeof absolute, "/%s", name);
  return folder < 0 ? -1 : show((int)syscall(SYS_openat2, folder, absolute, &how, sizeof how));
}

static int do_bad_resolve(const char *path) {
  struct open_how how = {.flags = O_RDONLY, .resolve = RESOLVE_BENEATH | RESOLVE_IN_ROOT};
  return show((int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how));
}

static int do_path_only(const char *path) {
  int fd = open(path, O_PATH);
  struct stat status;
  return fd < 0 ? -1 : show_status(fstat(fd, &status), &status);
}

/* Of the name itself, as programs do that fear links. */
/* The kernel goes by none of the other flags. */
static int do_path_made(const char *path) {
  int fd = open(path, O_PATH | O_CREAT | O_EXCL | O_WRONLY, 0600);
  struct stat status;
  return fd < 0 ? -1 : show_status(fstat(fd, &status), &status);
}

static int do_path_nofollow(const char *path) {
  int fd = open(path, O_PATH | O_NOFOLLOW);
  struct stat status;
  return fd < 0 ? -1 : show_status(fstat(fd, &status), &status);
}

static int do_directory(const char *path) {
  return show(open(path, O_RDONLY | O_DIRECTORY));
}

static int do_nofollow(const char *path) {
  return show(open(path, O_RDONLY | O_NOFOLLOW));
}

static int by_name(const void *left, const void *right) {
  return strcmp(*(char *const *)left, *(char *const *)right);
}

static int do_list(const char *path) {
  DIR *folder = opendir(path);
  char *names[256], all[4096] = "";
  size_t count = 0;
  if (!folder)
    return -1;
  for (struct dirent *entry; count < 256 && (entry = readdir(folder));) {
    if (entry->d_name[0] != '.')
      names[count++] = strdup(entry->d_name);
  }
  closedir(folder);
  qsort(names, count, sizeof *names, by_name);
  for (size_t i = 0; i < count && strlen(all) < sizeof all - 300; i++)
    strcat(strcat(all, " "), names[i]);
  return say("%s", all);
}

static int do_mmap(const char *path) {
  int fd = open(path, O_RDONLY);
  struct stat status;
  if (fd < 0 || fstat(fd, &status) < 0)
    return -1;
  char *text = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
  return text == MAP_FAILED ? -1 : say("%.*s", (int)strcspn(text, "\n"), text);
}

/* Of a size that was seen before it was opened: nothing looks at the open file. */
static int do_mmap_looked(const char *path) {
  struct stat status;
  int fd = stat(path, &status) < 0 ? -1 : open(path, O_RDONLY);
  if (fd < 0)
    return -1;
  char *text = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
  return text == MAP_FAILED ? -1 : say("%.*s", (int)strcspn(text, "\n"), text);
}

/* Nothing looks at it, before or after. */
static int do_sendfile(const char *path) {
  int ends[2], fd = open(path, O_RDONLY);
  if (fd < 0 || pipe(ends) < 0 || sendfile(ends[1], fd, NULL, 4096) < 0)
    return -1;
  close(ends[1]);
  return show(ends[0]);
}

/* ---- looking ---- */

static int do_stat(const char *path) {
  struct stat status;
  return show_status(stat(path, &status), &status);
}

static int do_lstat(const char *path) {
  struct stat status;
  return show_status(lstat(path, &status), &status);
}

static int do_fstatat(const char *path) {
  const char *name;
  struct stat status;
  int folder = parent_of(path, &name, O_PATH);
  return folder < 0 ? -1 : show_status(fstatat(folder, name, &status, 0), &status);
}

static int do_statx(const char *path) {
  struct statx status;
  if (statx(AT_FDCWD, path, 0, STATX_BASIC_STATS, &status) < 0)
    return -1;
  return say("%o %llu", status.stx_mode & S_IFMT, (unsigned long long)status.stx_size);
}

static int do_wrong_statx(const char *path) {
  struct statx status;
  return statx(AT_FDCWD, path, 1 << 30, 0, &status);
}

static int do_access(const char *path) {
  return access(path, R_OK);
}

static int do_faccessat2(const char *path) {
#ifdef SYS_faccessat2
  return (int)syscall(SYS_faccessat2, AT_FDCWD, path, R_OK, AT_EACCESS);
#else
  return access(path, R_OK);
#endif
}

static int do_readlink(const char *path) {
  char text[4096];
  ssize_t length = readlink(path, text, sizeof text - 1);
  return length < 0 ? -1 : say("%.*s", (int)length, text);
}

static int do_getxattr(const char *path) {
  char text[64];
  ssize_t length = getxattr(path, "user.test", text, sizeof text);
  return length < 0 ? -1 : say("%.*s", (int)length, text);
}

static int do_listxattr(const char *path) {
  char text[1024];
  return listxattr(path, text, sizeof text) < 0 ? -1 : 0;
}

static int do_inotify(const char *path) {
  int fd = inotify_init1(IN_CLOEXEC);
  return fd < 0 || inotify_add_watch(fd, path, IN_MODIFY) < 0 ? -1 : 0;
}

/* Of the name itself, should it be a link. */
static int do_inotify_nofollow(const char *path) {
  int fd = inotify_init1(IN_CLOEXEC);
  return fd < 0 || inotify_add_watch(fd, path, IN_MODIFY | IN_DONT_FOLLOW) < 0 ? -1 : 0;
}

#define CHANGES (IN_MODIFY | IN_CREATE)

/* Says what it sees of a change that somebody else makes when the file "watching" is there. */
static int see(int fd, int watch) {
  struct pollfd ready = {.fd = fd, .events = POLLIN};
  union {
    struct inotify_event event;
    char room[sizeof(struct inotify_event) + 256];
  } got;
  if (fd < 0 || watch < 0)
    return -1;
  close(open("watching", O_WRONLY | O_CREAT, 0644));
  int seen = poll(&ready, 1, 10000) == 1 && read(fd, &got, sizeof got) > 0;
  close(fd);
  return say("%s", seen && got.event.wd == watch ? "changed" : "nothing");
}

static int do_watch(const char *path) {
  int fd = inotify_init1(IN_CLOEXEC);
  return see(fd, inotify_add_watch(fd, path, CHANGES));
}

/* The caller's own folder: no name of it is looked up. */
static int do_watch_here(const char *path) {
  int fd = inotify_init1(IN_CLOEXEC), back = open(".", O_PATH | O_CLOEXEC);
  if (chdir(path) < 0)
    return -1;
  int watch = inotify_add_watch(fd, ".", CHANGES), errnum = errno;
  if (fchdir(back) < 0)
    return -1;
  errno = errnum;
  return see(fd, watch);
}

/* By a descriptor that only holds it. */
static int do_watch_held(const char *path) {
  int fd = inotify_init1(IN_CLOEXEC), held = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
  char name[64];
  if (held < 0)
    return -1;
  snprintf(name, sizeof name, "/proc/self/fd/%d", held);
  return see(fd, inotify_add_watch(fd, name, CHANGES));
}

static int do_statfs(const char *path) {
  struct statfs status;
  return statfs(path, &status);
}

/* ---- using ---- */

static void execute(const char *path) {
  execl(path, path, "argument", NULL);
}

/* By a descriptor. */
static void execute_open(const char *path) {
  char *const argv[] = {(char *)path, "argument", NULL};
  syscall(SYS_execveat, open(path, O_RDONLY), "", argv, environ, AT_EMPTY_PATH);
}

static int show_executed(void (*function)(const char *path), const char *path) {
  int ends[2], status;
  if (pipe(ends) < 0)
    return -1;
  pid_t pid = fork();
  if (pid == 0) {
    dup2(ends[1], 1);
    function(path);
    _exit(errno);
  }
  close(ends[1]);
  int result = show(ends[0]);
  waitpid(pid, &status, 0);
  if (!WIFEXITED(status) || WEXITSTATUS(status) == 0)
    return result;
  errno = WEXITSTATUS(status);
  return -1;
}

static int do_execute(const char *path) {
  return show_executed(execute, path);
}

static int do_execute_open(const char *path) {
  return show_executed(execute_open, path);
}

static int do_connect(const char *path) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
  return connect(fd, (struct sockaddr *)&address, sizeof address);
}

/* By way of a descriptor, as who fears that the path is too long. */
static int do_connect_held(const char *path) {
  char held[64];
  int fd = open(path, O_PATH);
  snprintf(held, sizeof held, "/proc/self/fd/%d", fd);
  return fd < 0 ? -1 : do_connect(held);
}

static int do_writable(const char *path) {
  return access(path, W_OK);
}

/* As a 32-bit program does it. */
static int do_compat_connect(const char *path) {
#ifdef __x86_64__
  struct sockaddr_un *low =
      mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
  int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  if (low == MAP_FAILED)
    return -1;
  low->sun_family = AF_UNIX;
  snprintf(low->sun_path, sizeof low->sun_path, "%s", path);
  long result;
  __asm__ volatile("int $0x80"
                   : "=a"(result)
                   : "a"(362), "b"(fd), "c"(low), "d"(sizeof *low)
                   : "memory", "r8", "r9", "r10", "r11");
  munmap(low, 4096);
  errno = -(int)result;
  return result < 0 ? -1 : 0;
#else
  return do_connect(path);
#endif
}

/* From inside its folder. */
static int do_relative(const char *path) {
  const char *name;
  int home = open(".", O_PATH | O_DIRECTORY), folder = parent_of(path, &name, O_PATH);
  char place[64], whole[4096];
  snprintf(place, sizeof place, "/proc/self/fd/%d", folder);
  snprintf(whole, sizeof whole, "%.*s", (int)(name - path), path);
  if (folder < 0 || chdir(whole) < 0)
    return -1;
  int result = show(open(name, O_RDONLY)), saved = errno;
  if (fchdir(home) < 0)
    return -1;
  errno = saved;
  return result;
}

static int do_up(const char *path) {
  const char *name;
  char whole[4096];
  int folder = parent_of(path, &name, O_PATH);
  snprintf(whole, sizeof whole, "%.*s../././%s/%s", (int)(name - path), path,
           basename(strndup(path, (size_t)(name - path - 1))), name);
  close(folder);
  return show(open(whole, O_RDONLY));
}

static int do_proc_fd(const char *path) {
  const char *name;
  char whole[4096];
  int folder = parent_of(path, &name, O_PATH);
  snprintf(whole, sizeof whole, "/proc/self/fd/%d/%s", folder, name);
  return folder < 0 ? -1 : show(open(whole, O_RDONLY));
}

/* A descriptor of it opened again. */
static int do_reopen(const char *path) {
  char whole[64];
  int fd = open(path, O_RDONLY);
  snprintf(whole, sizeof whole, "/proc/self/fd/%d", fd);
  return fd < 0 ? -1 : show(open(whole, O_RDONLY));
}

static int do_proc_cwd(const char *path) {
  char whole[8192] = "/proc/self/cwd", here[4096];
  if (!getcwd(here, sizeof here))
    return -1;
  for (const char *at = here; *at; at++) {
    if (*at == '/' && at[1])
      strcat(whole, "/..");
  }
  return show(open(strcat(whole, path), O_RDONLY));
}

struct in_thread {
  int (*function)(const char *path);
  const char *path;
  int result, errnum;
};

static void *thread_main(void *data) {
  struct in_thread *work = data;
  work->result = work->function(work->path);
  work->errnum = errno;
  return NULL;
}

static int in_a_thread(int (*function)(const char *path), const char *path) {
  struct in_thread work = {.function = function, .path = path};
  pthread_t thread;
  pthread_create(&thread, NULL, thread_main, &work);
  pthread_join(thread, NULL);
  errno = work.errnum;
  return work.result;
}

static int do_thread(const char *path) {
  return in_a_thread(do_open, path);
}

static int do_thread_connect(const char *path) {
  return in_a_thread(do_connect, path);
}

static int do_thread_inotify(const char *path) {
  return in_a_thread(do_inotify, path);
}

static void *alone_main(void *path) {
  char name[64], state = 0;
  snprintf(name, sizeof name, "/proc/self/task/%d/stat", getpid());
  while (state != 'Z') { /* its number, its name, its state */
    FILE *status = fopen(name, "re");
    if (!status || fscanf(status, "%*d (%*[^)]) %c", &state) != 1)
      _exit(ESRCH);
    fclose(status);
  }
  _exit(do_connect(path) < 0 ? errno : 0);
}

/* By a thread that is left when the first one has ended. */
static int do_alone_connect(const char *path) {
  int status = 0;
  pthread_t thread;
  pid_t pid = fork();
  if (pid == 0) {
    pthread_create(&thread, NULL, alone_main, (void *)path);
    syscall(SYS_exit, 0);
  }
  waitpid(pid, &status, 0);
  errno = WEXITSTATUS(status);
  return errno ? -1 : 0;
}

/* With somebody who traces it. */
static int traced(int (*function)(const char *path), const char *path) {
  int status = 0;
  pid_t pid = fork();
  if (pid == 0) {
    ptrace(PTRACE_TRACEME, 0, NULL, NULL);
    _exit(function(path) < 0 ? errno : 0);
  }
  while (waitpid(pid, &status, 0) == pid && WIFSTOPPED(status))
    ptrace(PTRACE_CONT, pid, NULL, WSTOPSIG(status));
  errno = WEXITSTATUS(status);
  return errno ? -1 : 0;
}

static int do_traced_connect(const char *path) {
  return traced(do_connect, path);
}

static int do_traced_stat(const char *path) {
  return traced(do_stat, path);
}

static int do_traced_inotify(const char *path) {
  return traced(do_inotify, path);
}

static volatile sig_atomic_t alarms;

static void on_alarm(int number) {
  (void)number;
  alarms++;
}

/* Under a rain of signals; they must all be taken. */
static int do_alarmed_connect(const char *path) {
  struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
  struct itimerval often = {{0, 500}, {0, 500}}, never = {0};
  sigaction(SIGALRM, &action, NULL);
  setitimer(ITIMER_REAL, &often, NULL);
  int result = do_connect(path), saved = errno;
  for (sig_atomic_t before = alarms; alarms == before;)
    ;
  setitimer(ITIMER_REAL, &never, NULL);
  errno = saved;
  return result;
}

/* /proc/thread-self of a thread that is not the first. */
static int open_own_name(const char *path) {
  (void)path;
  char text[64];
  int fd = open("/proc/thread-self/comm", O_RDONLY);
  ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
  return length < 0 ? -1 : 0;
}

static int do_thread_self(const char *path) {
  return in_a_thread(open_own_name, path);
}

static int do_fork(const char *path) {
  int ends[2], status;
  if (pipe(ends) < 0)
    return -1;
  pid_t pid = fork();
  if (pid == 0) {
    int result = do_open(path);
    dprintf(ends[1], "%s\n", said);
    _exit(result < 0 ? errno : 0);
  }
  close(ends[1]);
  show(ends[0]);
  waitpid(pid, &status, 0);
  errno = WEXITSTATUS(status);
  return errno ? -1 : 0;
}

static int do_full_table(const char *path) {
  struct rlimit old, low = {3, 3};
  getrlimit(RLIMIT_NOFILE, &old);
  low.rlim_max = old.rlim_max;
  setrlimit(RLIMIT_NOFILE, &low);
  int fd = open(path, O_RDONLY), saved = errno;
  setrlimit(RLIMIT_NOFILE, &old);
  errno = saved;
  return show(fd);
}

static int do_write_again(const char *path) {
  char whole[64];
  int fd = open(path, O_RDONLY);
  snprintf(whole, sizeof whole, "/proc/self/fd/%d", fd);
  return fd < 0 ? -1 : open(whole, O_RDWR);
}

/* ---- writing ---- */

static int do_append(const char *path) {
  return open(path, O_WRONLY | O_APPEND);
}

static int do_create(const char *path) {
  return open(path, O_WRONLY | O_CREAT, 0644);
}

static int do_exclusive(const char *path) {
  return open(path, O_WRONLY | O_CREAT | O_EXCL, 0644);
}

static int do_mkdir(const char *path) {
  return mkdir(path, 0755);
}

static int do_truncate(const char *path) {
  return truncate(path, 0);
}

static int do_rename(const char *path) {
  char other[4096];
  snprintf(other, sizeof other, "%s.other", path);
  return rename(path, other);
}

static int do_link(const char *path) {
  return link(path, "/tmp/linked");
}

/* The first name of a file that has none. */
static int do_link_open(const char *path) {
  return linkat(open(".", O_TMPFILE | O_RDWR, 0600), "", AT_FDCWD, path, AT_EMPTY_PATH);
}

static int do_link_followed(const char *path) {
  return linkat(AT_FDCWD, path, AT_FDCWD, "/tmp/followed", AT_SYMLINK_FOLLOW);
}

static int do_symlink(const char *path) {
  return symlink("anything", path);
}

static int do_chmod(const char *path) {
  return chmod(path, 0640);
}

static int do_fchmodat(const char *path) {
  return fchmodat(AT_FDCWD, path, 0640, 0);
}

/* To whom it belongs: the kernel looks at the file first. */
static int do_chown(const char *path) {
  return chown(path, getuid(), getgid());
}

static int do_mkfifo(const char *path) {
  return mkfifo(path, 0644);
}

static int do_mknod(const char *path) {
  return mknodat(AT_FDCWD, path, S_IFREG | 0644, 0);
}

static int do_bind(const char *path) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
  return bind(fd, (struct sockaddr *)&address, sizeof address);
}

/* To a socket by its name, without connecting first. */
static int do_send(const char *path) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
  snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
  return sendto(fd, "x", 1, 0, (struct sockaddr *)&address, sizeof address) < 0 ? -1 : 0;
}

/* The same in pieces; and with a descriptor. */
static int send_message(const char *path, bool rights) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  struct iovec pieces[] = {{(char *)"", 0}, {(char *)"x", 1}};
  union {
    struct cmsghdr header;
    char room[CMSG_SPACE(sizeof(int))];
  } control = {.header = {CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS}};
  struct msghdr message = {&address, sizeof address, pieces, 2, NULL, 0, 0};
  int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
  memcpy(CMSG_DATA(&control.header), &fd, sizeof fd);
  if (rights)
    message.msg_control = &control, message.msg_controllen = sizeof control;
  snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
  return sendmsg(fd, &message, 0) == 1 ? 0 : -1;
}

static int do_send_message(const char *path) {
  return send_message(path, false);
}

static int do_send_rights(const char *path) {
  return send_message(path, true);
}

static const struct {
  const char *name;
  int (*use)(const char *path);
} ways[] = {
    {"open", do_open},
    {"old-open", do_old_open},
    {"compat-open", do_compat_open},
    {"closed-memory", do_closed_memory},
    {"openat", do_openat},
    {"openat2", do_openat2},
    {"in-root", do_in_root},
    {"bad-resolve", do_bad_resolve},
    {"path-only", do_path_only},
    {"path-nofollow", do_path_nofollow},
    {"path-made", do_path_made},
    {"directory", do_directory},
    {"nofollow", do_nofollow},
    {"list", do_list},
    {"mmap", do_mmap},
    {"mmap-looked", do_mmap_looked},
    {"sendfile", do_sendfile},
    {"stat", do_stat},
    {"lstat", do_lstat},
    {"fstatat", do_fstatat},
    {"statx", do_statx},
    {"wrong-statx", do_wrong_statx},
    {"access", do_access},
    {"faccessat2", do_faccessat2},
    {"readlink", do_readlink},
    {"getxattr", do_getxattr},
    {"listxattr", do_listxattr},
    {"inotify", do_inotify},
    {"inotify-nofollow", do_inotify_nofollow},
    {"watch", do_watch},
    {"watch-here", do_watch_here},
    {"watch-held", do_watch_held},
    {"statfs", do_statfs},
    {"execute", do_execute},
    {"execute-open", do_execute_open},
    {"connect", do_connect},
    {"connect-held", do_connect_held},
    {"writable", do_writable},
    {"compat-connect", do_compat_connect},
    {"thread-connect", do_thread_connect},
    {"alone-connect", do_alone_connect},
    {"thread-inotify", do_thread_inotify},
    {"traced-connect", do_traced_connect},
    {"traced-inotify", do_traced_inotify},
    {"traced-stat", do_traced_stat},
    {"alarmed-connect", do_alarmed_connect},
    {"send", do_send},
    {"send-message", do_send_message},
    {"send-rights", do_send_rights},
    {"bind", do_bind},
    {"chmod", do_chmod},
    {"fchmodat", do_fchmodat},
    {"chown", do_chown},
    {"mkfifo", do_mkfifo},
    {"mknod", do_mknod},
    {"chdir", chdir},
    {"relative", do_relative},
    {"up", do_up},
    {"proc-fd", do_proc_fd},
    {"proc-cwd", do_proc_cwd},
    {"reopen", do_reopen},
    {"thread", do_thread},
    {"thread-self", do_thread_self},
    {"fork", do_fork},
    {"full-table", do_full_table},
    {"write-again", do_write_again},
    {"append", do_append},
    {"create", do_create},
    {"exclusive", do_exclusive},
    {"mkdir", do_mkdir},
    {"rmdir", rmdir},
    {"unlink", unlink},
    {"truncate", do_truncate},
    {"rename", do_rename},
    {"link", do_link},
    {"link-open", do_link_open},
    {"link-followed", do_link_followed},
    {"symlink", do_symlink},
};

int main(int argc, char **argv) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  for (int i = 1; i + 1 < argc; i += 2) {
    bool known = false;
    for (size_t j = 0; j < sizeof ways / sizeof ways[0]; j++) {
      if (strcmp(argv[i], ways[j].name) != 0)
        continue;
      known = true;
      said[0] = '\0';
      errno = 0;
      int result = ways[j].use(argv[i + 1]);
      printf("%s %s\n", argv[i], result < 0 ? strerrorname_np(errno) : said[0] ? said : "ok");
    }
    if (!known)
      return 2;
  }
  return 0;
}
