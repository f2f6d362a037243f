/* A stock of unused placeholders in the state folder. Making and removing a folder costs a journal
 * transaction each on most file systems (0.2-0.4 ms seen on ext4); moving one costs a twentieth.
 * The stock is a convenience: where it cannot be used, placeholders are made and removed. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct pool {
  int fd;       /* the stock's folder, -1 if there is none */
  char **names; /* folders in stock when it was opened */
  size_t count;
  size_t files; /* files in stock: one for each project that is in use */
  size_t taken, given; /* how many of them we used, and put back */
};

/* Opens the stock below a state folder, making it if needed. Never fails: see fd. */
struct pool pool_open(const char *state_folder);
void pool_close(struct pool *pool);

/* Moves a placeholder to its place: a folder if content is NULL, else the file with this content.
 * Returns 0, -EEXIST if the name is taken, or -ENOENT if the stock has none (or cannot be used). */
int pool_take(struct pool *pool, int parent, const char *name, const char *content);

/* Moves one back. `fd` is the placeholder, opened for reading. Returns 0, or -1 if it must be
 * removed in the ordinary way. Something that is not empty any more stays where it is. */
int pool_give(struct pool *pool, int parent, const char *name, const char *content, int fd,
              const char *session_id);

/* True if the folder behind the descriptor has no entries. */
bool folder_is_empty(int fd);
