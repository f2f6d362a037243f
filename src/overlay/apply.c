/* Carries an overlay over to the original; see apply.h. The layer is hostile: no name of it is
 * resolved through a link, no special file of it is opened, nothing outside the original's folder
 * can be written. */
#include "overlay/apply.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/path.h"
#include "core/text.h"
#include "overlay/copy.h"

/* Setuid, setgid and sticky bits never leave a sandbox. */
enum { PERMISSIONS = 0777, TEMPORARY_SIZE = 48, BATCH_SIZE = 128, FEW = 8 };

/* ---- deciding ---- */

static void temporary_name(const struct overlay *overlay, size_t number,
                           char ret_name[TEMPORARY_SIZE]) {
  snprintf(ret_name, TEMPORARY_SIZE, ".sandbox-apply-%s-%zu", overlay->id, number);
}

/* The workload knows its session's id and could take our names. */
static bool is_reserved(const struct overlay *overlay, const char *path) {
  char first[TEMPORARY_SIZE];
  temporary_name(overlay, 0, first);
  return strncmp(path_base(path), first, strlen(first) - 1) == 0;
}

/* A folder on the way to something chosen is needed, too. */
static bool is_chosen(const struct overlay *overlay, const struct overlay_layer *place,
                      const struct layer_change *change) {
  const struct strv *only = &overlay->intent.only;
  _cleanup_free_ char *path = path_join(place->path, change->path);
  STRV_FOREACH (wanted, only) {
    if (path_is_under(path, *wanted) ||
        (change->kind == CHANGE_CREATED && path_is_under(*wanted, path)))
      return true;
  }
  return only->count == 0;
}

static enum apply_verdict judge(const struct overlay *overlay, const struct overlay_layer *place,
                                const struct layer_change *change) {
  if (!is_chosen(overlay, place, change))
    return APPLY_NOT_CHOSEN;
  if (change->problem || (change->flags & (CHANGE_SOCKET | CHANGE_DEVICE)) ||
      is_reserved(overlay, change->path))
    return APPLY_IMPOSSIBLE;
  if ((change->flags & CHANGE_DANGEROUS) && !overlay->intent.include_protected)
    return APPLY_PROTECTED;
  if (change->conflict && !overlay->intent.force)
    return APPLY_CONFLICT;
  return APPLY_DO;
}

/* What is left out takes what lies below it along; the layer is sorted so that this follows it. */
static void judge_layer(struct apply *apply, size_t index) {
  const struct layer *layer = &apply->layers[index];
  const struct layer_change *left_out = NULL;
  enum apply_verdict inherited = APPLY_DO;
  apply->verdicts[index] = xcalloc(layer->count + 1, sizeof **apply->verdicts);
  for (size_t i = 0; i < layer->count; i++) {
    const struct layer_change *change = &layer->changes[i];
    if (left_out && !path_is_under(change->path, left_out->path))
      left_out = NULL;
    enum apply_verdict verdict = left_out ? inherited : judge(apply->overlay, layer->place, change);
    if (!left_out && verdict != APPLY_DO && change->kind == CHANGE_CREATED) {
      left_out = change;
      inherited = verdict;
    }
    apply->verdicts[index][i] = verdict;
    apply->totals[verdict]++;
  }
}

int apply_prepare(struct overlay *overlay, const char *home, struct apply *ret_apply,
                  struct sb_error *error) {
  _cleanup_apply_ struct apply apply = {.overlay = overlay};
  apply.layers = xcalloc(overlay->layer_count, sizeof *apply.layers);
  apply.verdicts = xcalloc(overlay->layer_count, sizeof *apply.verdicts);
  for (size_t i = 0; i < overlay->layer_count; i++)
    apply.layers[i] = (struct layer){.upper = -1, .lower = -1};
  for (size_t i = 0; i < overlay->layer_count; i++) {
    if (layer_read(overlay, i, home, &apply.layers[i], error) < 0)
      return -1;
    judge_layer(&apply, i);
  }
  *ret_apply = apply;
  apply = (struct apply){0};
  return 0;
}

void apply_clear(struct apply *apply) {
  for (size_t i = 0; apply->overlay && i < apply->overlay->layer_count; i++) {
    layer_clear(&apply->layers[i]);
    free(apply->verdicts[i]);
  }
  free(apply->layers);
  free(apply->verdicts);
  *apply = (struct apply){0};
}

char *apply_why_not(const struct layer_change *change, enum apply_verdict verdict) {
  struct text text = {0};
  switch (verdict) {
  case APPLY_CONFLICT:
    return xstrdup(change->conflict ? change->conflict : "lies in a folder that is in conflict");
  case APPLY_IMPOSSIBLE:
    if (change->problem)
      return xstrdup(change->problem);
    break;
  case APPLY_PROTECTED:
    break;
  default:
    return NULL;
  }
  for (size_t i = 0; i < CHANGE_FLAG_COUNT; i++) {
    enum change_flag flag = (enum change_flag)(1 << i);
    if (!(change->flags & flag & CHANGE_DANGEROUS))
      continue;
    bool has_own_words = flag == CHANGE_PROTECTED && change->reason;
    text_appendf(&text, "%s%s", text.length ? ", " : "",
                 has_own_words ? change->reason : change_flag_text(flag));
  }
  if (text.length == 0)
    text_append(&text, verdict == APPLY_PROTECTED ? "lies in a folder that is left out"
                                                  : "its name is reserved");
  return text_steal(&text);
}

/* ---- one change ---- */

/* Where a change happens: the open folder of the original, and names in it. */
struct spot {
  const struct layer *layer;
  const struct layer_change *change;
  int parent;
  const char *name;
  char temporary[TEMPORARY_SIZE];
};

/* The original must still be what the decision was about. */
static int check_unchanged(const struct spot *spot) {
  struct stat now;
  if (fstatat(spot->parent, spot->name, &now, AT_SYMLINK_NOFOLLOW) < 0)
    return -errno;
  const struct layer_change *change = spot->change;
  bool same = now.st_ino == change->old_inode &&
              (S_ISDIR(now.st_mode) || (now.st_ctim.tv_sec == change->old_stamp.tv_sec &&
                                        now.st_ctim.tv_nsec == change->old_stamp.tv_nsec));
  return same ? 0 : -EBUSY;
}

static int put_in_place(const struct spot *spot) {
  if (spot->change->kind == CHANGE_MODIFIED) {
    int result = check_unchanged(spot);
    if (result < 0)
      return result;
    return renameat(spot->parent, spot->temporary, spot->parent, spot->name) < 0 ? -errno : 0;
  }
  int result = renameat2(spot->parent, spot->temporary, spot->parent, spot->name, RENAME_NOREPLACE);
  if (result < 0 && errno == EINVAL) /* not on this file system */
    result = renameat(spot->parent, spot->temporary, spot->parent, spot->name);
  return result < 0 ? -errno : 0;
}

static int make_file(const struct spot *spot, const struct stat *wanted) {
  _cleanup_close_ int source = layer_open_file(spot->layer->upper, spot->change->path);
  if (source < 0)
    return source;
  _cleanup_close_ int target = openat(spot->parent, spot->temporary,
                                      O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (target < 0)
    return -errno;
  int result = copy_contents(source, target);
  if (result < 0)
    return result;
  (void)!fchown(target, wanted->st_uid, wanted->st_gid); /* only root can, and only it has to */
  const struct timespec times[2] = {wanted->st_atim, wanted->st_mtim};
  if (fchmod(target, wanted->st_mode & PERMISSIONS) < 0 || futimens(target, times) < 0)
    return -errno;
  return 0;
}

static int make_link(const struct spot *spot, const struct stat *wanted) {
  _cleanup_free_ char *target = layer_read_link(spot->layer->upper, spot->change->path);
  if (!target)
    return -EINVAL;
  if (symlinkat(target, spot->parent, spot->temporary) < 0)
    return -errno;
  (void)!fchownat(spot->parent, spot->temporary, wanted->st_uid, wanted->st_gid,
                  AT_SYMLINK_NOFOLLOW);
  return 0;
}

static int make_fifo(const struct spot *spot, const struct stat *wanted) {
  return mkfifoat(spot->parent, spot->temporary, wanted->st_mode & PERMISSIONS) < 0 ? -errno : 0;
}

static int stat_layer(const struct layer *layer, const char *path, struct stat *ret_status) {
  const char *name;
  _cleanup_close_ int parent = layer_open_parent(layer->upper, path, &name);
  if (parent < 0)
    return parent;
  return fstatat(parent, name, ret_status, AT_SYMLINK_NOFOLLOW) < 0 ? -errno : 0;
}

/* Everything but the rename. */
static int prepare_object(const struct spot *spot) {
  struct stat wanted;
  int result = stat_layer(spot->layer, spot->change->path, &wanted);
  if (result < 0)
    return result;
  unlinkat(spot->parent, spot->temporary, 0); /* of an interrupted attempt */
  switch (wanted.st_mode & S_IFMT) {
  case S_IFREG:
    result = make_file(spot, &wanted);
    break;
  case S_IFLNK:
    result = make_link(spot, &wanted);
    break;
  case S_IFIFO:
    result = make_fifo(spot, &wanted);
    break;
  default:
    return -EINVAL;
  }
  if (result < 0)
    unlinkat(spot->parent, spot->temporary, 0);
  return result;
}

/* Ours alone until its own mode is set, after everything in it is there. */
static int make_folder(const struct spot *spot) {
  if (mkdirat(spot->parent, spot->name, 0700) == 0)
    return 0;
  struct stat found;
  int errnum = errno;
  bool is_there = errnum == EEXIST &&
                  fstatat(spot->parent, spot->name, &found, AT_SYMLINK_NOFOLLOW) == 0 &&
                  S_ISDIR(found.st_mode);
  return is_there ? 0 : -errnum;
}

static int delete_object(const struct spot *spot) {
  bool is_folder = S_ISDIR(spot->change->old_mode);
  int result = check_unchanged(spot);
  if (result == 0 && unlinkat(spot->parent, spot->name, is_folder ? AT_REMOVEDIR : 0) < 0)
    result = -errno;
  if (result == -ENOENT)
    return 0;
  /* Something in it was left out on purpose. */
  return is_folder && (result == -ENOTEMPTY || result == -EEXIST) && !spot->change->makes_room
             ? 0
             : result;
}

static int set_folder_mode(const struct spot *spot) {
  struct stat wanted;
  int result = stat_layer(spot->layer, spot->change->path, &wanted);
  if (result < 0)
    return result;
  _cleanup_close_ int fd =
      openat(spot->parent, spot->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0)
    return -errno;
  if (spot->change->kind == CHANGE_CREATED)
    (void)!fchown(fd, wanted.st_uid, wanted.st_gid);
  return fchmod(fd, wanted.st_mode & PERMISSIONS) < 0 ? -errno : 0;
}

/* ---- all of them ---- */

static bool is_folder_now(const struct layer_change *change) {
  return S_ISDIR(change->mode);
}

static bool makes_room(const struct layer_change *change) {
  return change->kind == CHANGE_DELETED && change->makes_room;
}

static bool is_new_folder(const struct layer_change *change) {
  return change->kind == CHANGE_CREATED && is_folder_now(change);
}

static bool is_object(const struct layer_change *change) {
  return change->kind != CHANGE_DELETED && !is_folder_now(change);
}

static bool is_plain_deletion(const struct layer_change *change) {
  return change->kind == CHANGE_DELETED && !change->makes_room;
}

static bool has_folder_mode(const struct layer_change *change) {
  return change->kind != CHANGE_DELETED && is_folder_now(change);
}

/* Deletions come after creations, so that at no moment both the old and the new are missing. What
 * empties or closes a folder goes from the deepest up. */
static const struct apply_phase {
  bool (*concerns)(const struct layer_change *);
  int (*act)(const struct spot *); /* NULL: in batches */
  bool deepest_first;
  const char *doing;
} phases[] = {
    {makes_room, delete_object, true, "removing"},
    {is_new_folder, make_folder, false, "making the folder"},
    {is_object, NULL, false, "writing"},
    {is_plain_deletion, delete_object, true, "removing"},
    {has_folder_mode, set_folder_mode, true, "setting the mode of"},
};

static int explain(const struct apply *apply, const struct layer *layer,
                   const struct layer_change *change, const struct apply_phase *phase, int result,
                   struct sb_error *error) {
  _cleanup_free_ char *path = path_join(layer->place->path, change->path);
  _cleanup_free_ char *shown = escape_string(path);
  if (result == -EBUSY || result == -EEXIST)
    sb_fail(error, SB_CODE_CONFLICT, 0, "'%s' was changed while it was being applied", shown);
  else if (result == -ELOOP || result == -EXDEV)
    sb_fail(error, SB_CODE_CONFLICT, 0,
            "a folder of '%s' has become a symbolic link or a mount point", shown);
  else
    sb_fail(error, SB_CODE_SYSTEM, -result, "%s '%s'", phase->doing, shown);
  return sb_hint(error, "nothing is lost; once it is put right, continue with: sandbox apply %s",
                 apply->overlay->id);
}

static int do_change(const struct apply *apply, const struct layer *layer,
                     const struct layer_change *change, const struct apply_phase *phase,
                     struct sb_error *error) {
  struct spot spot = {.layer = layer, .change = change};
  _cleanup_close_ int parent = layer_open_parent(layer->lower, change->path, &spot.name);
  spot.parent = parent;
  int result = parent < 0 ? parent : phase->act(&spot);
  if (parent == -ENOENT && change->kind == CHANGE_DELETED)
    return 0;
  return result < 0 ? explain(apply, layer, change, phase, result, error) : 0;
}

/* ---- writing in batches ---- */

/* Waiting for the disk is what costs: a batch of files is prepared, waited for once, and renamed.
 */
struct batch {
  struct spot spots[BATCH_SIZE];
  size_t count, done; /* prepared, renamed */
};

static void batch_clear(struct batch *batch) {
  for (size_t i = 0; i < batch->count; i++) {
    if (i >= batch->done)
      unlinkat(batch->spots[i].parent, batch->spots[i].temporary, 0);
    close(batch->spots[i].parent);
  }
  batch->count = batch->done = 0;
}
#define _cleanup_batch_ __attribute__((cleanup(batch_clear)))

static int flush_one(const struct spot *spot) {
  if (!S_ISREG(spot->change->mode))
    return 0;
  _cleanup_close_ int fd =
      openat(spot->parent, spot->temporary, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0 && errno == EACCES)
    return syncfs(spot->layer->lower) < 0 ? -errno : 0; /* its mode keeps us out already */
  return fd < 0 || fsync(fd) < 0 ? -errno : 0;
}

/* All of a file system for many files, but not for a few: others may be writing gigabytes. */
static int flush_batch(const struct batch *batch) {
  if (batch->count > FEW)
    return syncfs(batch->spots[0].layer->lower) < 0 ? -errno : 0;
  for (size_t i = 0; i < batch->count; i++) {
    int result = flush_one(&batch->spots[i]);
    if (result < 0)
      return result;
  }
  return 0;
}

static int finish_batch(const struct apply *apply, struct batch *batch,
                        const struct apply_phase *phase, struct sb_error *error) {
  int result = batch->count ? flush_batch(batch) : 0;
  while (result == 0 && batch->done < batch->count) {
    result = put_in_place(&batch->spots[batch->done]);
    batch->done += result == 0;
  }
  if (result < 0) {
    const struct spot *spot = &batch->spots[batch->done];
    return explain(apply, spot->layer, spot->change, phase, result, error);
  }
  batch_clear(batch);
  return 0;
}

static int add_to_batch(const struct apply *apply, struct batch *batch, const struct layer *layer,
                        const struct layer_change *change, const struct apply_phase *phase,
                        struct sb_error *error) {
  struct spot *spot = &batch->spots[batch->count];
  *spot = (struct spot){.layer = layer, .change = change};
  temporary_name(apply->overlay, batch->count, spot->temporary);
  _cleanup_close_ int parent = layer_open_parent(layer->lower, change->path, &spot->name);
  spot->parent = parent;
  int result = parent < 0 ? parent : prepare_object(spot);
  if (result < 0)
    return explain(apply, layer, change, phase, result, error);
  steal_fd(&parent);
  batch->count++;
  return batch->count < BATCH_SIZE ? 0 : finish_batch(apply, batch, phase, error);
}

static int do_batches(const struct apply *apply, size_t index, const struct apply_phase *phase,
                      struct sb_error *error) {
  const struct layer *layer = &apply->layers[index];
  _cleanup_batch_ struct batch batch = {0};
  for (size_t i = 0; i < layer->count; i++)
    if (apply->verdicts[index][i] == APPLY_DO && phase->concerns(&layer->changes[i]) &&
        add_to_batch(apply, &batch, layer, &layer->changes[i], phase, error) < 0)
      return -1;
  return finish_batch(apply, &batch, phase, error);
}

static int do_phase(const struct apply *apply, size_t index, const struct apply_phase *phase,
                    struct sb_error *error) {
  const struct layer *layer = &apply->layers[index];
  for (size_t i = 0; i < layer->count; i++) {
    size_t at = phase->deepest_first ? layer->count - 1 - i : i;
    if (apply->verdicts[index][at] == APPLY_DO && phase->concerns(&layer->changes[at]) &&
        do_change(apply, layer, &layer->changes[at], phase, error) < 0)
      return -1;
  }
  return 0;
}

static int do_layers(const struct apply *apply, struct sb_error *error) {
  for (size_t i = 0; i < apply->overlay->layer_count; i++) {
    for (size_t k = 0; k < ARRAY_SIZE(phases); k++)
      if ((phases[k].act ? do_phase : do_batches)(apply, i, &phases[k], error) < 0)
        return -1;
    if (syncfs(apply->layers[i].lower) < 0)
      return sb_fail_errno(error, "writing the changes to the disk");
  }
  return 0;
}

static void sweep_folder(const struct apply *apply, int folder) {
  for (size_t i = 0; i < BATCH_SIZE; i++) {
    char temporary[TEMPORARY_SIZE];
    temporary_name(apply->overlay, i, temporary);
    unlinkat(folder, temporary, 0);
  }
}

static bool same_folder(const char *path, const char *other) {
  size_t length = (size_t)(path_base(path) - path);
  return length == (size_t)(path_base(other) - other) && strncmp(path, other, length) == 0;
}

void apply_sweep(struct apply *apply) {
  for (size_t i = 0; i < apply->overlay->layer_count; i++) {
    const struct layer *layer = &apply->layers[i];
    for (size_t k = 0; k < layer->count; k++) {
      const char *name, *path = layer->changes[k].path;
      if (k > 0 && same_folder(path, layer->changes[k - 1].path))
        continue;
      _cleanup_close_ int parent = layer_open_parent(layer->lower, path, &name);
      if (parent >= 0)
        sweep_folder(apply, parent);
    }
  }
}

static bool leaves_something(const struct apply *apply) {
  for (size_t i = 0; i < APPLY_VERDICT_COUNT; i++)
    if (i != APPLY_DO && apply->totals[i] > 0)
      return true;
  return false;
}

int apply_carry_out(struct apply *apply, bool *ret_removed, struct sb_error *error) {
  struct overlay *overlay = apply->overlay;
  if (overlay->state == OVERLAY_APPLYING)
    apply_sweep(apply);
  else if (overlay_set_state(overlay, OVERLAY_APPLYING, error) < 0)
    return -1;
  if (do_layers(apply, error) < 0)
    return -1;
  bool is_done = !leaves_something(apply);
  overlay_forget_intent(overlay);
  if (overlay_set_state(overlay, is_done ? OVERLAY_APPLIED : OVERLAY_KEPT, error) < 0)
    return -1;
  *ret_removed = is_done && overlay_remove(overlay->folder) == 0;
  return 0;
}
