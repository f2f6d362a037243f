/* Sockets of the host's programs that lie where the session can see them. A read-only mount does
 * not stop connect(2), and whoever listens may do anything for who asks. Those with well-known
 * places are not in the view; of the others the kernel has a list. */
#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/file.h"
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

static int send_request(int line) {
  struct {
    struct nlmsghdr head;
    struct unix_diag_req request;
  } message = {
      .head = {.nlmsg_len = sizeof message,
               .nlmsg_type = SOCK_DIAG_BY_FAMILY,
               .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
      /* Who listens, and who takes datagrams; not each of their connections. */
      .request = {.sdiag_family = AF_UNIX,
                  .udiag_states = 1 << TCP_LISTEN | 1 << TCP_CLOSE,
                  .udiag_show = UDIAG_SHOW_NAME},
  };
  struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
  return sendto(line, &message, sizeof message, 0, (struct sockaddr *)&kernel, sizeof kernel) < 0
             ? -errno
             : 0;
}

static void take_socket(struct compiler *compiler, const struct nlmsghdr *head) {
  const struct unix_diag_msg *socket = NLMSG_DATA(head);
  const struct rtattr *attribute = (const struct rtattr *)(socket + 1);
  int left = (int)(head->nlmsg_len - NLMSG_LENGTH(sizeof *socket));
  for (; RTA_OK(attribute, left); attribute = RTA_NEXT(attribute, left)) {
    const char *bytes = RTA_DATA(attribute);
    if (attribute->rta_type != UNIX_DIAG_NAME || RTA_PAYLOAD(attribute) == 0 || bytes[0] != '/')
      continue;
    _cleanup_free_ char *name = xstrndup(bytes, RTA_PAYLOAD(attribute));
    add_socket(compiler, name);
  }
}

/* NLMSG_OK compares numbers with and without sign, which clang does not accept. */
static bool is_whole(const struct nlmsghdr *head, int left) {
  return left >= (int)sizeof *head && head->nlmsg_len >= sizeof *head &&
         head->nlmsg_len <= (unsigned)left;
}

/* 1: there is more, 0: that was all. */
static int take_answer(struct compiler *compiler, const char *bytes, size_t length) {
  int left = (int)length;
  for (const struct nlmsghdr *head = (const struct nlmsghdr *)bytes; is_whole(head, left);
       head = NLMSG_NEXT(head, left)) {
    if (head->nlmsg_type == NLMSG_DONE)
      return 0;
    if (head->nlmsg_type == NLMSG_ERROR)
      return -EOPNOTSUPP; /* the kernel was built without it */
    if (head->nlmsg_len >= NLMSG_LENGTH(sizeof(struct unix_diag_msg)))
      take_socket(compiler, head);
  }
  return 1;
}

static int ask_kernel(struct compiler *compiler) {
  _cleanup_close_ int line = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
  union {
    char bytes[8192]; /* as much as the kernel gives at once by itself */
    struct nlmsghdr align;
  } answer;
  int result = line < 0 ? -errno : send_request(line);
  if (result < 0)
    return result;
  do {
    ssize_t got = recv(line, &answer, sizeof answer, 0);
    if (got <= 0)
      return got < 0 ? -errno : -EPROTO;
    result = take_answer(compiler, answer.bytes, (size_t)got);
  } while (result > 0);
  return result;
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
  if (ask_kernel(compiler) < 0)
    read_table(compiler);
}
