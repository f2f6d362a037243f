/* What the parts of the FUSE trigger share: fuse.c (calls that wait, the session with the kernel),
 * fuse-lookup.c (what is answered at once), fuse-attributes.c (what a caller may do),
 * fuse-serve.c (what is served without a mount) and fuse-write.c; fuse-once.c: what is done in a
 * caller's place. */
#pragma once

#define FUSE_USE_VERSION 314
#include <fuse_lowlevel.h>

#include "gate/links.h"
#include "gate/nodes.h"
#include "gate/once.h"
#include "gate/quiet.h"
#include "gate/second-walks.h"
#include "gate/stand-in.h"
#include "gate/waiting.h"

#define ENDLESS        1e9
#define FOLDER_SECONDS 1.0

enum call {
  CALL_GETATTR,
  CALL_OPEN,
  CALL_OPENDIR,
  CALL_READDIR,
  CALL_READDIRPLUS,
  CALL_ACCESS,
  CALL_GETXATTR,
  CALL_LISTXATTR,
  CALL_QUIET,
};

struct fuse_gate {
  struct gate *gate;
  struct nodes *nodes;
  struct fuse_session *session;
  struct fuse_buf buffer;
  struct once_list once;
  struct links links;
  struct second_walks second_walks;
  struct held *held;         /* every call that waits */
  size_t opens;              /* files that are open without a mount, and may be mapped */
  struct parked *parked;     /* look-ups that do */
  struct standing *standing; /* calls that are made in the place of one that waits */
  bool checks;               /* the kernel checks rights by attributes, see fuse-attributes.c */
  int events;                /* while there are any: all that is to be served; else -1 */
  struct {
    pid_t thread;
    unsigned count;
  } again[64]; /* how often the calls of a thread began anew without need, see fuse-once.c */
};

/* A call that waits for a decision or a grant. */
struct held {
  struct waiting waiting; /* first: a pointer to it is one to this */
  struct held *previous, *next;
  struct fuse_gate *fuse;
  fuse_req_t request;
  struct node *node;
  struct node *other;      /* that it holds a lock on as well, or NULL */
  char *name, *other_name; /* in them, that it changes; or NULL */
  pid_t thread;            /* who waits, as we see it */
  enum call call;
  struct fuse_file_info info;
  char *attribute;
  size_t size;
  off_t offset;
  bool signalled;                    /* and goes on */
  unsigned links;                    /* that led to it */
  bool link;                         /* the kernel takes it for one */
  bool checked;                      /* it asks for attributes, to see what the caller may do */
  struct stand_in_call in_its_place; /* CALL_QUIET */
  bool granted_before;               /* but the mount was not met */
  bool below;                        /* something that was granted before it asked */
  bool early;                        /* a write that has not begun: see fuse-attributes.c */
  struct standing *standing;         /* or NULL */
};

static inline struct fuse_gate *fuse_gate_of(fuse_req_t request) {
  return fuse_req_userdata(request);
}

/* It reads names, with the folder locked, and walks no path. */
static inline bool fuse_is_listing(const struct held *held) {
  return held->call == CALL_READDIR || held->call == CALL_READDIRPLUS;
}

/* A node is known by two numbers: its own, and that of the question in its place. */
#define QUESTION ((fuse_ino_t)1)

static inline struct node *fuse_node_of(struct fuse_gate *fuse, fuse_ino_t number) {
  return number == FUSE_ROOT_ID ? nodes_root(fuse->nodes) : (struct node *)(number & ~QUESTION);
}

static inline fuse_ino_t fuse_number_of(const struct node *node) {
  return node->parent ? (fuse_ino_t)node : FUSE_ROOT_ID;
}

/* Right below "/", where each name is a mount of its own, the kernel looks nothing up: a socket is
 * always a question there. */
static inline bool fuse_is_always_asked(const struct node *node) {
  return S_ISSOCK(node->status.st_mode) && node->parent && !node->parent->parent;
}

static inline bool fuse_is_question(fuse_ino_t number) {
  return number & QUESTION && number != FUSE_ROOT_ID;
}

/* ---- fuse.c ---- */

extern const enum want held_wants[];

/* A call that may have to wait; it is on the list until held_free(). */
struct held *held_new(fuse_req_t request, struct node *node, enum call call,
                      const struct fuse_file_info *info);
void held_free(struct held *held);

/* Who waits for the answer. A page of a file that is open without a mount comes from here: who
 * reads the caller's memory may find one there that is to be read by us first. */
struct target fuse_caller(fuse_req_t request);

/* What is used up when this was allowed once. */
enum once_use held_use(const struct held *held);

/* Asks for a decision, and frees it when the call is answered. */
void held_ask(struct held *held, enum want want);

/* A signal may end it while it waits. False: one has, and it is answered and freed. */
bool held_mind_signals(struct held *held);

/* Both, for what such a call wants as a rule. */
void held_begin(fuse_req_t request, fuse_ino_t number, enum call call,
                const struct fuse_file_info *info);

/* For a call that uses the object itself without telling its file system. */
void held_ask_quietly(struct held *held, const struct quiet_use *use);

/* ---- fuse-attributes.c ---- */

bool fuse_is_open_kind(const struct node *node);
struct stat fuse_question(void);

/* What everybody may know of a node. */
struct stat fuse_shown(struct fuse_gate *fuse, struct node *node);

/* The same, with every right: another request follows, and waits. */
struct stat fuse_usable(struct fuse_gate *fuse, struct node *node);

/* How long the kernel may remember that. */
double fuse_shown_seconds(const struct fuse_gate *fuse, const struct node *node);
void fuse_ask_to_look(fuse_req_t request, struct node *node, enum call call);
void fuse_op_getattr(fuse_req_t request, fuse_ino_t number, struct fuse_file_info *info);
void fuse_op_access(fuse_req_t request, fuse_ino_t number, int mask);

/* ---- fuse-lookup.c ---- */

struct fuse_entry_param fuse_entry_of(struct fuse_gate *fuse, struct node *node, const char *path);
bool fuse_may_ask_to_write(const struct fuse_gate *fuse, const char *path);
bool fuse_needs_mount(enum want want);
void fuse_unpark(struct fuse_gate *fuse, const char *path);
void fuse_op_lookup(fuse_req_t request, fuse_ino_t parent, const char *name);
void fuse_op_forget(fuse_req_t request, fuse_ino_t number, uint64_t count);
void fuse_serve_link(fuse_req_t request, fuse_ino_t number);
void fuse_op_statfs(fuse_req_t request, fuse_ino_t number);

/* ---- fuse-serve.c ---- */

/* The call will walk its path again, and must be answered then. */
void fuse_expect_again(struct held *held);
void fuse_serve_attributes(fuse_req_t request, int fd);
void fuse_serve_folder(struct held *held, int fd, bool allowed);
void fuse_serve(struct held *held);
void fuse_op_read(fuse_req_t request, fuse_ino_t number, size_t size, off_t offset,
                  struct fuse_file_info *info);
void fuse_op_release(fuse_req_t request, fuse_ino_t number, struct fuse_file_info *info);
void fuse_op_readdir(fuse_req_t request, fuse_ino_t number, size_t size, off_t offset,
                     struct fuse_file_info *info);
void fuse_op_readdirplus(fuse_req_t request, fuse_ino_t number, size_t size, off_t offset,
                         struct fuse_file_info *info);
void fuse_op_releasedir(fuse_req_t request, fuse_ino_t number, struct fuse_file_info *info);

/* ---- fuse-once.c ---- */

/* Is this a call that can be made in its place, or one that has to begin anew when its folder is
 * mounted? Then it is; and it is answered and freed. */
bool fuse_stands_in(const struct held *held);
bool fuse_must_begin_anew(const struct held *held);
bool fuse_starts_below(const struct held *held);
void fuse_stand_in(struct held *held);
void fuse_mounted(struct fuse_gate *fuse, const char *path, bool mounted);
void fuse_forget_stand_in(struct held *held);
void fuse_serve_stand_ins(struct fuse_gate *fuse);
void fuse_end_stand_ins(struct fuse_gate *fuse);

/* ---- fuse-write.c ---- */

/* Sends calls away that hold a lock which mounting at the path needs (NULL: whatever they hold).
 * They walk again, and wait for the mount in a look-up. */
void fuse_give_way(struct fuse_gate *fuse, const char *path);

/* The same for a call that comes while something is mounted; true if it was sent away. */
bool fuse_comes_in_between(struct held *held);

/* While the broker still walks to the path: who holds the lock of a folder on its way. */
void fuse_clear_way(struct fuse_gate *fuse, const char *path);

/* To an object, or to the folder of a name. */
void fuse_write_to(fuse_req_t request, struct node *node);
void fuse_write_below(fuse_req_t request, fuse_ino_t parent, const char *name);
void fuse_op_open(fuse_req_t request, fuse_ino_t number, struct fuse_file_info *info);
void fuse_op_create(fuse_req_t request, fuse_ino_t parent, const char *name, mode_t mode,
                    struct fuse_file_info *info);
void fuse_op_mknod(fuse_req_t request, fuse_ino_t parent, const char *name, mode_t mode,
                   dev_t device);
void fuse_op_mkdir(fuse_req_t request, fuse_ino_t parent, const char *name, mode_t mode);
void fuse_op_symlink(fuse_req_t request, const char *target, fuse_ino_t parent, const char *name);
void fuse_op_link(fuse_req_t request, fuse_ino_t number, fuse_ino_t parent, const char *name);
void fuse_op_rename(fuse_req_t request, fuse_ino_t parent, const char *name, fuse_ino_t to,
                    const char *new_name, unsigned flags);
void fuse_op_setattr(fuse_req_t request, fuse_ino_t number, struct stat *status, int fields,
                     struct fuse_file_info *info);
void fuse_op_setxattr(fuse_req_t request, fuse_ino_t number, const char *name, const char *value,
                      size_t size, int flags);
void fuse_op_removexattr(fuse_req_t request, fuse_ino_t number, const char *name);
