/* Making and removing the session's cgroups. Inside src/limits only. */
#pragma once

#include "limits/limits.h"
#include "limits/place.h"

/* A session's group is called by its id, and the leaf that its monitor steps into by both. */
#define CGROUP_PREFIX         "sandbox-"
#define CGROUP_MONITOR_SUFFIX ".monitor"

/* Which controllers the limits (and metrics, if wanted) need in that version. */
unsigned cgroup_controllers_needed(enum cgroup_version version, const struct limit_set *set,
                                   bool metrics);

/* Make the folders, as far as possible. Nothing possible is no failure. */
void cgroup_v1_create(struct limit_group *group, const struct cgroup_place *place, unsigned needed);
void cgroup_v2_create(struct limit_group *group, const struct cgroup_place *place, unsigned needed);

/* Writes the limits. Returns the mask of kinds that are held by the group now. */
unsigned cgroup_apply(struct limit_group *group);

/* One write, as cgroup files want it. 0 or a negative errno. */
int cgroup_write(int folder, const char *file, const char *text);

/* rmdir of a folder and what is below it, as far as no process is inside. 0 or a negative errno. */
int cgroup_remove_tree(int parent, const char *name);

/* v2: our own group gets its process back and loses the controllers. */
void cgroup_v2_move_back(struct limit_group *group);
