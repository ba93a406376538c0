/* Unions of intervals, the time they cover, and times looked up among ordered ones: coverage.py,
 * compiled.
 *
 * Each is one pass: what is asked mostly comes in order, so each search begins where the one before
 * ended. Knows nothing of Python, and may run in several threads.
 */
#include <stddef.h>
#include <stdint.h>

#include "search.h"

#ifdef _WIN32
#define EXPORTED __declspec(dllexport)
#else
#define EXPORTED __attribute__((visibility("default")))
#endif

static const char NO_ORDER[] = "the intervals are not in order";

/* Disjoint intervals in order of lane and start; `lane` is NULL where there is only one. */
struct covered {
    int64_t *lane;
    int64_t *start;
    int64_t *end;
    int64_t count;
};

static void cover(struct covered *covered, int64_t lane, int64_t start, int64_t end)
{
    int64_t last = covered->count - 1;
    if (last >= 0 && start <= covered->end[last] && (!covered->lane || covered->lane[last] == lane)) {
        covered->end[last] = end > covered->end[last] ? end : covered->end[last];
        return;
    }
    if (covered->lane)
        covered->lane[covered->count] = lane;
    covered->start[covered->count] = start;
    covered->end[covered->count++] = end;
}

/* The union of intervals on each lane, and of these the time that `least` of them, 1 or 2, cover.
 *
 * They are in order of lane and start; empty ones cover nothing, wherever they are. Returns NULL,
 * or the reason why it cannot.
 */
EXPORTED const char *traceview_union(const int64_t *lane, const int64_t *start, const int64_t *end,
                                     int64_t rows, int64_t least, struct covered *covered)
{
    int64_t before = -1, reach = 0;
    covered->count = 0;
    for (int64_t row = 0; row < rows; row++) {
        if (end[row] <= start[row])
            continue;
        int64_t own = lane ? lane[row] : 0;
        int same = before >= 0 && (!lane || lane[before] == own);
        if (before >= 0 && (same ? start[row] < start[before] : own < lane[before]))
            return NO_ORDER;
        /* Of all that began before, the one that reaches furthest is open the longest. */
        int64_t until = least < 2 || end[row] < reach ? end[row] : reach;
        if (least < 2 || (same && until > start[row]))
            cover(covered, own, start[row], until);
        reach = same && reach > end[row] ? reach : end[row];
        before = row;
    }
    return NULL;
}

/* How many of `count` ascending numbers are less than each value, or at most it with `right`. */
EXPORTED void traceview_places(const int64_t *ordered, int64_t count, const int64_t *values,
                               int64_t asked, int64_t right, int64_t *places)
{
    int64_t place = 0;
    for (int64_t i = 0; i < asked; i++)
        places[i] = place = place_near(ordered, 0, count, place, values[i], right);
}

/* The length of a union before each time; `done` is that before each interval, and all of it. */
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
