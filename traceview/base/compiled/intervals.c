/* C code of intervals.py: unions of intervals, the time they cover, lookups among ordered times.
 *
 * Each function is one pass: queries mostly come in order, so each search begins where the previous
 * one ended. Knows nothing of Python, and may run in several threads.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "search.h"

#ifdef _WIN32
#define EXPORTED __declspec(dllexport)
#else
#define EXPORTED __attribute__((visibility("default")))
#endif

static const char NO_ORDER[] = "the intervals are not in order";

/* Disjoint intervals in order of start. */
struct covered {
    int64_t *start;
    int64_t *end;
    int64_t count;
};

/* Append an interval, or extend the last one where they touch; `first` is the first of the lane. */
static int64_t cover(struct covered *covered, int64_t first, int64_t next, int64_t start, int64_t end)
{
    if (next > first && start <= covered->end[next - 1]) {
        if (end > covered->end[next - 1])
            covered->end[next - 1] = end;
        return next;
    }
    covered->start[next] = start;
    covered->end[next] = end;
    return next + 1;
}

/* The times that at least `least` (1 or 2) of the intervals cover; for 1, their union.
 *
 * The intervals are in order of start; empty ones are ignored and may be anywhere. Returns NULL, or
 * the reason of a failure.
 */
EXPORTED const char *traceview_union(const int64_t *start, const int64_t *end, int64_t rows,
                                     int64_t least, struct covered *covered)
{
    int64_t before = INT64_MIN, reach = INT64_MIN;
    covered->count = 0;
    for (int64_t row = 0; row < rows; row++) {
        if (end[row] <= start[row])
            continue;
        if (start[row] < before)
            return NO_ORDER;
        /* Until the earlier of this end and the furthest end before, two intervals are open. */
        int64_t until = least < 2 || end[row] < reach ? end[row] : reach;
        if (until > start[row])
            covered->count = cover(covered, 0, covered->count, start[row], until);
        reach = reach > end[row] ? reach : end[row];
        before = start[row];
    }
    return NULL;
}

/* The union of the intervals of each lane, lane after lane; those on a negative lane are left out.
 *
 * The intervals are in order of start. `ends` receives the end of each lane in `covered`; `firsts`
 * must be zeros. A lane gets room for all of its intervals and merges them there; then the lanes
 * are moved together.
 */
EXPORTED const char *traceview_union_on_lanes(const int32_t *lane, const int64_t *start,
                                              const int64_t *end, int64_t rows, int64_t lanes,
                                              int64_t *firsts, int64_t *ends,
                                              struct covered *covered)
{
    int64_t before = INT64_MIN, room = 0;
    for (int64_t row = 0; row < rows; row++) {
        if (lane[row] < 0 || end[row] <= start[row])
            continue;
        if (start[row] < before)
            return NO_ORDER;
        before = start[row];
        firsts[lane[row]]++;
    }
    for (int64_t each = 0; each < lanes; each++) {
        int64_t count = firsts[each];
        firsts[each] = ends[each] = room;
        room += count;
    }
    for (int64_t row = 0; row < rows; row++) {
        int32_t own = lane[row];
        if (own >= 0 && end[row] > start[row])
            ends[own] = cover(covered, firsts[own], ends[own], start[row], end[row]);
    }
    covered->count = 0;
    for (int64_t each = 0; each < lanes; each++) {
        int64_t first = firsts[each], count = ends[each] - first;
        memmove(covered->start + covered->count, covered->start + first, (size_t)count * sizeof *start);
        memmove(covered->end + covered->count, covered->end + first, (size_t)count * sizeof *end);
        ends[each] = covered->count += count;
    }
    return NULL;
}

/* For each value, how many of `count` ascending numbers are less; with `right`, at most equal. */
EXPORTED void traceview_places(const int64_t *ordered, int64_t count, const int64_t *values,
                               int64_t asked, int64_t right, int64_t *places)
{
    int64_t place = 0;
    for (int64_t i = 0; i < asked; i++)
        places[i] = place = place_near(ordered, 0, count, place, values[i], right);
}

/* The rows of the ascending times that lie inside a union. `rows` has room for all of them. */
EXPORTED void traceview_rows_inside(const int64_t *start, const int64_t *end, int64_t count,
                                    const int64_t *time, int64_t times, int64_t *rows,
                                    int64_t *inside)
{
    int64_t at = 0, found = 0;
    for (int64_t row = 0; row < times && at < count; row++) {
        while (at < count && end[at] <= time[row])
            at++;
        rows[found] = row;
        found += at < count && start[at] <= time[row];
    }
    *inside = found;
}

/* The intersection of two unions; `both` has room for the intervals of both. */
EXPORTED void traceview_intersection(const int64_t *start, const int64_t *end, int64_t count,
                                     const int64_t *other_start, const int64_t *other_end,
                                     int64_t other_count, struct covered *both)
{
    both->count = 0;
    for (int64_t one = 0, other = 0; one < count && other < other_count;) {
        int64_t begins = start[one] > other_start[other] ? start[one] : other_start[other];
        int64_t ends = end[one] < other_end[other] ? end[one] : other_end[other];
        both->start[both->count] = begins;
        both->end[both->count] = ends;
        both->count += begins < ends;
        if (end[one] < other_end[other])
            one++;
        else
            other++;
    }
}

/* The most intervals open at a start at or after `first`. The starts and the ends each ascend. At
 * equal times an end comes before a start. */
EXPORTED void traceview_most_open(const int64_t *starts, const int64_t *ends, int64_t count,
                                  int64_t first, int64_t *most)
{
    int64_t ended = 0;
    *most = 0;
    for (int64_t begun = 1; begun <= count; begun++) {
        int64_t start = starts[begun - 1];
        while (ended < count && ends[ended] <= start)
            ended++;
        if (start >= first && begun - ended > *most)
            *most = begun - ended;
    }
}

/* The length of a union before each time. `done` has its length before each interval, then all. */
EXPORTED void traceview_covered_before(const int64_t *start, const int64_t *end,
                                       const int64_t *done, int64_t count, const int64_t *time,
                                       int64_t asked, int64_t *length)
{
    int64_t begun = 0;
    for (int64_t i = 0; i < asked; i++) {
        begun = place_near(start, 0, count, begun, time[i], 1);
        int64_t left = begun ? end[begun - 1] - time[i] : 0;
        length[i] = done[begun] - (left > 0 ? left : 0);
    }
}

/* The intervals, among `rows`, inside no other, each cut at the start of the next; empty ones are
 * left out. The rows must be in order of start, the longest first where starts are equal. */
EXPORTED const char *traceview_outermost(const int64_t *start, const int64_t *end,
                                         const int32_t *rows, int64_t count, int32_t *outer,
                                         int64_t *outer_start, int64_t *outer_end, int64_t *outers)
{
    int64_t last_start = INT64_MIN, last_end = INT64_MAX, most = INT64_MIN, found = 0;
    for (int64_t place = 0; place < count; place++) {
        int64_t begins = start[rows[place]], ends = end[rows[place]];
        if (ends <= begins)
            continue;
        if (begins < last_start || (begins == last_start && ends > last_end))
            return NO_ORDER;
        last_start = begins;
        last_end = ends;
        if (found && ends <= most)
            continue;
        most = ends;
        if (found && outer_end[found - 1] > begins)
            outer_end[found - 1] = begins;
        outer[found] = rows[place];
        outer_start[found] = begins;
        outer_end[found++] = ends;
    }
    *outers = found;
    return NULL;
}

/* The rows of intervals that overlap another one, if they are in order of start, and whether they
 * are, the longest first where starts are equal. `rows` has room for `count` rows. */
EXPORTED void traceview_overlapping(const int64_t *start, const int64_t *end, int64_t count,
                                    int64_t *rows, int64_t *overlapping, int64_t *ordered)
{
    int64_t most = count ? end[0] : 0, found = 0, after = 0;
    for (int64_t row = 1; row < count; row++) {
        after |= start[row] < start[row - 1] || (start[row] == start[row - 1] && end[row] > end[row - 1]);
        if (start[row] < most) {
            if (!found || rows[found - 1] != row - 1)
                rows[found++] = row - 1;
            rows[found++] = row;
        }
        most = end[row] > most ? end[row] : most;
    }
    *overlapping = found;
    *ordered = !after;
}
