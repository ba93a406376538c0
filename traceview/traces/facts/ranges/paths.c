/* Paths of ranges in one pass: paths.py, compiled.
 *
 * A path is found among the paths below the same parent. Mostly it is the one after the path found
 * there last, as loops repeat their ranges in the same order, or it is new: its name is, or its
 * parent has just begun. Otherwise its siblings are searched.
 */
#include <stdint.h>

#ifdef _WIN32
#define EXPORTED __declspec(dllexport)
#else
#define EXPORTED __attribute__((visibility("default")))
#endif

/* Paths: parent (-1 at the top), name and depth, and the paths below each one as a circle: `next` has
 * the one after each path. Entry path + 1 of `last_found` has one of the circle below a path, -1 for
 * none, and entry 0 one at the top. `with_name` has for each name the path found last that ends in
 * it, -1 for none. */
struct paths {
    int32_t *parent;
    int32_t *name;
    int32_t *depth;
    int32_t *last_found;
    int32_t *next;
    int32_t *with_name;
    int64_t count;
    int64_t steps; /* that searches may still take */
};

static int32_t new_path(struct paths *of, int32_t parent, int32_t name)
{
    int32_t path = (int32_t)of->count++, before = of->last_found[parent + 1];
    of->parent[path] = parent;
    of->name[path] = name;
    of->depth[path] = parent < 0 ? 0 : of->depth[parent] + 1;
    of->last_found[path + 1] = -1;
    of->next[path] = path;
    /* Behind the one found last, so that the circle has the order of a loop. */
    if (before >= 0) {
        of->next[path] = of->next[before];
        of->next[before] = path;
    }
    return path;
}

static int32_t path_below(struct paths *of, int32_t parent, int32_t name)
{
    int32_t same = of->with_name[name], last = of->last_found[parent + 1], path = -1;
    if (same >= 0 && of->parent[same] == parent)
        path = same;
    else if (same >= 0 && last >= 0) {
        int32_t at = of->next[last];
        for (; of->name[at] != name && at != last && of->steps > 0; of->steps--)
            at = of->next[at];
        if (of->name[at] == name)
            path = at;
    }
    if (path < 0)
        path = new_path(of, parent, name);
    of->last_found[parent + 1] = path;
    of->with_name[name] = path;
    return path;
}

/* The path of each range, numbered as they first appear. `around` has the row of the range around
 * each one, -1 at the top; it may come later. `path` has a -1 per range, and the lists room for as
 * many paths, plus one for the top. After too many steps, `steps` is 0 and the result is void. */
EXPORTED void traceview_number_paths(const int32_t *around, const int32_t *name, int64_t rows,
                                     int32_t *path, struct paths *of)
{
    of->count = 0;
    of->last_found[0] = -1;
    for (int64_t row = 0; row < rows && of->steps > 0; row++)
        while (path[row] < 0 && of->steps > 0) {
            int64_t at = row;
            while (around[at] >= 0 && path[around[at]] < 0)
                at = around[at];
            path[at] = path_below(of, around[at] < 0 ? -1 : path[around[at]], name[at]);
        }
}

/* Add the number of each path to its parent's. A path comes after its parent. */
EXPORTED void traceview_add_to_parents(const int32_t *parent, int64_t paths, int64_t *numbers)
{
    for (int64_t path = paths - 1; path >= 0; path--)
        if (parent[path] >= 0)
            numbers[parent[path]] += numbers[path];
}
