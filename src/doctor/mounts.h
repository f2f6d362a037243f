/* The calls of the new mount API, each tried for real. To be called in a mount namespace of one's
 * own; each returns 0 or an errno. */
#pragma once

int mounts_try_open_tree(void);
int mounts_try_move_mount(void);
int mounts_try_mount_setattr(void);
int mounts_try_fsopen(void);
