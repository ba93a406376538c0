/* The nesting of intervals in one pass, as on a stack: nesting.py, compiled.
 *
 * The intervals are sorted by (track, start, -end) and none is empty; rows bounds[t] to
 * bounds[t + 1] are those of track t. The open intervals are a chain of parents, so there is no
 * other stack.
 */
#include <stdint.h>

#include "../../../base/compiled/search.h"

#ifdef _WIN32
#define EXPORTED __declspec(dllexport)
#else
#define EXPORTED __attribute__((visibility("default")))
#endif

/* The innermost interval that contains each one, -1 where none does.
 *
 * `crossing` is 1 for the tracks on which intervals overlap without nesting. There an interval that
 * overlaps another is its sibling.
 */
EXPORTED void traceview_nest(const int64_t *start, const int64_t *end, const int64_t *bounds,
                             int64_t tracks, int32_t *parent, uint8_t *crossing)
{
    for (int64_t track = 0; track < tracks; track++) {
        int32_t open = -1;
        crossing[track] = 0;
        for (int64_t row = bounds[track]; row < bounds[track + 1]; row++) {
            while (open >= 0 && end[open] < end[row]) {
                crossing[track] |= end[open] > start[row];
                open = parent[open];
            }
            parent[row] = open;
            open = (int32_t)row;
        }
    }
}

/* Whether the intervals are sorted by (track, start, -end). */
EXPORTED void traceview_in_nesting_order(const int32_t *track, const int64_t *start,
                                         const int64_t *end, int64_t rows, int64_t *result)
{
    *result = 1;
    for (int64_t row = 1; row < rows && *result; row++) {
        int before = track[row - 1] < track[row];
        if (track[row - 1] == track[row])
            before = start[row - 1] < start[row] ||
                     (start[row - 1] == start[row] && end[row - 1] >= end[row]);
        *result = before;
    }
}

/* The row of the interval open at each time on its track that began last, -1 where none is.
 *
 * Only for tracks without crossing. `places` is room for one number per track.
 */
EXPORTED void traceview_innermost(const int64_t *start, const int64_t *end, const int32_t *parent,
                                  const int64_t *bounds, int64_t tracks, int64_t *places,
                                  const int32_t *track, const int64_t *time, int64_t count,
                                  int32_t *result)
{
    for (int64_t each = 0; each < tracks; each++)
        places[each] = bounds[each];
    for (int64_t i = 0; i < count; i++) {
        result[i] = -1;
        int32_t own = track[i];
        if (own < 0 || own >= tracks)
            continue;
        int64_t begun =
            place_near(start, bounds[own], bounds[own + 1], places[own], time[i], 1);
        places[own] = begun;
        if (begun == bounds[own])
            continue;
        int32_t row = (int32_t)(begun - 1);
        while (row >= 0 && end[row] <= time[i])
            row = parent[row];
        result[i] = row;
    }
}

/* The value of each of some intervals, or of its nearest ancestor if its own is negative; -1 for
 * none, also where the row itself is -1.
 */
EXPORTED void traceview_nearest(const int32_t *value, const int32_t *parent, const int32_t *rows,
                                int64_t count, int32_t *result)
{
    for (int64_t i = 0; i < count; i++) {
        int32_t row = rows[i];
        while (row >= 0 && value[row] < 0)
            row = parent[row];
        result[i] = row < 0 ? -1 : value[row];
    }
}

/* As traceview_nearest for all intervals. A walk stops where an earlier one has been. */
EXPORTED void traceview_inherited(const int32_t *value, const int32_t *parent, int64_t count,
                                  int32_t *result)
{
    enum { UNKNOWN = -2 };
    for (int64_t row = 0; row < count; row++)
        result[row] = value[row] < 0 ? UNKNOWN : value[row];
    for (int64_t row = 0; row < count; row++) {
        int32_t top = (int32_t)row, at = (int32_t)row;
        while (result[top] == UNKNOWN && parent[top] >= 0)
            top = parent[top];
        int32_t known = result[top] == UNKNOWN ? -1 : result[top];
        for (; at != top; at = parent[at])
            result[at] = known;
        result[top] = known;
    }
}

/* The number of ancestors of each interval. */
EXPORTED void traceview_depths(const int32_t *parent, int64_t count, int32_t *depth)
{
    for (int64_t row = 0; row < count; row++)
        depth[row] = parent[row] < 0 ? 0 : -1;
    for (int64_t row = 0; row < count; row++) {
        int32_t above = 0, at = (int32_t)row;
        for (; depth[at] < 0; at = parent[at])
            above++;
        above += depth[at];
        for (at = (int32_t)row; depth[at] < 0; at = parent[at])
            depth[at] = above--;
    }
}

/* Mark all ancestors of some intervals; those that are marked have their ancestors marked. */
EXPORTED void traceview_mark_around(const int32_t *parent, const int32_t *rows, int64_t count,
                                    uint8_t *marked)
{
    for (int64_t i = 0; i < count; i++)
        for (int32_t row = rows[i]; row >= 0 && !marked[row]; row = parent[row])
            marked[row] = 1;
}

/* The time of each interval outside those inside it. `own` has room for a number per interval. */
EXPORTED void traceview_own_time(const int64_t *start, const int64_t *end, const int32_t *parent,
                                 int64_t count, int64_t *own)
{
    for (int64_t row = 0; row < count; row++)
        own[row] = end[row] - start[row];
    for (int64_t row = 0; row < count; row++)
        if (parent[row] >= 0)
            own[parent[row]] -= end[row] - start[row];
    /* Intervals that overlap without nesting share time. */
    for (int64_t row = 0; row < count; row++)
        own[row] = own[row] > 0 ? own[row] : 0;
}

/* Add each interval's time, and its time outside those inside it, to the sums of its number.
 *
 * An interval without a parent and all those inside it are rows one after another. `room` is as
 * long as the longest such run; only that much of it is touched. */
EXPORTED void traceview_sum_nested(const int64_t *start, const int64_t *end, const int32_t *parent,
                                   const int32_t *number, int64_t count, int64_t *room,
                                   int64_t *total, int64_t *own)
{
    for (int64_t first = 0, next; first < count; first = next) {
        next = first;
        do {
            int64_t duration = end[next] - start[next];
            total[number[next]] += duration;
            room[next - first] = duration;
            if (parent[next] >= 0)
                room[parent[next] - first] -= duration;
            next++;
        } while (next < count && parent[next] >= 0);
        /* Intervals that overlap without nesting share time. */
        for (int64_t row = first; row < next; row++)
            if (room[row - first] > 0)
                own[number[row]] += room[row - first];
    }
}
