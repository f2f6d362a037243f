/* Sockets of the host's programs that lie where the session can see them. A read-only mount does
 * not stop connect(2), and whoever listens may do anything for who asks. Those with well-known
 * places are not in the view; of the others the kernel has a list. */
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/file.h"
#include "core/unix-diag.h"
#include "plan/compile.h"

#define TABLE       "/proc/self/net/unix"
#define TABLE_LIMIT (16 << 20)

static bool is_listed(const struct compiler *compiler, const char *path) {
  STRV_FOREACH (item, &compiler->policy->network.unix_sockets) {
    _cleanup_free_ char *object = compile_resolve(*item);
    if (object && strcmp(object, path) == 0)
      return true;
  }
  return false;
}

/* The same names again and again: one for each connection. */
static bool is_known(const struct found_list *list, const char *path) {
  for (size_t i = 0; i < list->count; i++) {
    if (strcmp(list->items[i].path, path) == 0)
      return true;
  }
  return false;
}

static void add_socket(struct compiler *compiler, const char *name) {
  struct stat status;
  const char *source, *place;
  if (compile_private_place(name, &source, &place) || is_known(&compiler->sockets, name) ||
      lstat(name, &status) < 0 || !S_ISSOCK(status.st_mode))
    return;
  _cleanup_free_ char *path = compile_resolve(name);
  if (path && !is_listed(compiler, path) && !is_known(&compiler->sockets, path))
    found_add(&compiler->sockets, steal_pointer(path), NULL, "a socket of another program");
}

/* ---- asking the kernel ---- */

static void take_name(void *context, const struct unix_diag_msg *socket, int kind, const void *data,
                      size_t length) {
  const char *bytes = data;
  bool connection = socket->udiag_state == TCP_ESTABLISHED && socket->udiag_type != SOCK_DGRAM;
  if (connection || kind != UNIX_DIAG_NAME || length == 0 || bytes[0] != '/')
    return;
  _cleanup_free_ char *name = xstrndup(bytes, length);
  add_socket(context, name);
}

/* Who listens, and who takes datagrams (and is "established" as soon as somebody has connected to
 * it); not each of their connections. */
static int ask_kernel(struct compiler *compiler) {
  _cleanup_close_ int line = unix_diag_open();
  unsigned states = 1 << TCP_LISTEN | 1 << TCP_CLOSE | 1 << TCP_ESTABLISHED;
  return line < 0 ? line : unix_diag_dump(line, states, UDIAG_SHOW_NAME, take_name, compiler);
}

/* ---- reading its table, which takes longer: it has every connection ---- */

/* "Num: RefCount Protocol Flags Type St Inode Path", the last only where there is one. */
static const char *path_of(const char *line) {
  const char *path = strchr(line, '/');
  return path && path > line && path[-1] == ' ' ? path : NULL;
}

static void read_table(struct compiler *compiler) {
  _cleanup_free_ char *table = NULL;
  if (file_read_at(AT_FDCWD, TABLE, TABLE_LIMIT, &table, NULL) < 0)
    return;
  char *rest = NULL;
  for (char *line = strtok_r(table, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
    const char *path = path_of(line);
    if (path)
      add_socket(compiler, path);
  }
}

void compile_sockets(struct compiler *compiler) {
  if (ask_kernel(compiler) == 0)
    return;
  read_table(compiler);
  if (compiler->plan->guards_sockets)
    strv_add(
        &compiler->plan->warnings,
        "this kernel does not list UNIX sockets (CONFIG_UNIX_DIAG): sockets of programs outside "
        "that start later can be reached");
  compiler->plan->guards_sockets = false;
}
