/* Which folder above a path may sensibly be allowed as a whole. Pure: names only. */
#pragma once

#include "core/error.h"
#include "policy/policy.h"

/* The folder to propose along with a path: the one that holds the tool, package or project it
 * belongs to. Never "/", a home folder or something above one, never one that may hold something
 * hidden. New string; NULL if there is none. */
char *ancestor_propose(const struct policy *policy, const struct policy_context *context,
                       const char *path);

/* True for "/", home folders and what is above them: nobody means all of that by one answer. */
bool ancestor_is_too_large(const struct policy_context *context, const char *tree);

/* Refuses a tree that is not the path or a folder above it, or that is too large to be meant. */
int ancestor_check(const struct policy_context *context, const char *path, const char *tree,
                   struct sb_error *error);

/* True if writing to the path, or to something below it, could change what our own policy says, or
 * if the path is a protected name (".git/hooks", ".bashrc"): nobody is asked about that. */
bool ancestor_is_guarded(const struct policy_context *context, const char *path);

/* True if names in the folder are executed at the next login or command (~/.cargo has "bin"). */
bool ancestor_holds_guarded(const struct policy_context *context, const char *folder);

/* A hide rule that may match the tree or something in it, or NULL. */
const struct rule *ancestor_secret(const struct policy *policy, const char *tree);
