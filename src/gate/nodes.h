/* What the kernel knows of the gate's file system: one node for each name it looked up. A node is
 * held by a descriptor (O_PATH) that was opened from its parent's, component by component, never by
 * a path; the number of descriptors is bounded, and one that was closed is opened again only if the
 * name still leads to the same object. Only a folder above a mount is whatever folder has its name
 * on the host: it must not be another node, and a host replaces folders, too. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

struct node {
  struct node *parent; /* NULL: the root */
  struct node *next;   /* in the same bucket of the table */
  struct node *older, *newer;
  char *name;
  uint64_t lookups;    /* what the kernel will forget */
  unsigned references; /* children and waiting requests */
  unsigned pins;       /* somebody is asked about it: its descriptor stays open */
  unsigned opens;      /* files that are open without a mount */
  bool told;           /* its size may be told: somebody who may open it walks again for that */
  struct stat status;  /* as it was when it was looked up */
  int fd;              /* -1: closed for want of descriptors */
  bool fixed;          /* a mount point or above one: keeps its number, whatever the host does */
  size_t bucket;       /* where in the table */
};

struct nodes;

struct nodes *nodes_new(void);
void nodes_free(struct nodes *nodes);
struct node *nodes_root(struct nodes *nodes);

/* Looks a name up on the host, and counts the look-up. Returns 0 or a negative errno. */
int nodes_lookup(struct nodes *nodes, struct node *parent, const char *name,
                 struct node **ret_node);

/* The kernel forgets so many look-ups. */
void nodes_forget(struct nodes *nodes, struct node *node, uint64_t count);

void node_reference(struct node *node);
void nodes_release(struct nodes *nodes, struct node *node);

/* A descriptor of the object (O_PATH), valid until the next call; or a negative errno, -ESTALE if
 * the name leads to something else by now. */
int nodes_fd(struct nodes *nodes, struct node *node);

/* Closes what would keep the host from unmounting a file system. */
void nodes_let_go(struct nodes *nodes);

/* The node of a path, if the kernel knows it; else NULL. */
struct node *nodes_find(struct nodes *nodes, const char *path);

/* Lets a fixed node follow the host again: it becomes what its name leads to now. */
void nodes_refresh(struct nodes *nodes, struct node *node);

/* The absolute path, up to PATH_MAX with its NUL; false if it is longer. */
bool node_path(const struct node *node, char *ret_path, size_t size);
