/* Idle gaps cut by what a thread did meanwhile, in one pass: gap_parts.py, compiled.
 *
 * The gaps are ascending and disjoint, and so are the times of each kind of activity; the edges of
 * ranges are ascending. So a cursor in each of them moves forward only.
 */
#include <stdint.h>

#ifdef _WIN32
#define EXPORTED __declspec(dllexport)
#else
#define EXPORTED __attribute__((visibility("default")))
#endif

enum { OUTSIDE_CUDA = -1, IN_FLIGHT = -2, QUEUE_FULL = -3, OFF_CPU = -4 };

struct spans {
    const int64_t *start;
    const int64_t *end;
    int64_t count;
};

struct activity {
    struct spans calls;
    const int32_t *names; /* of the calls */
    struct spans queue_full;
    struct spans off_cpu;
    const int64_t *edges;
    int64_t edge_count;
};

/* The result, and its number of rows. */
struct parts {
    int32_t *gap;
    int64_t *start;
    int64_t *end;
    int32_t *activity;
    int64_t count;
};

/* The first of some spans, and of the edges, that ends after the time. */
struct cursors {
    int64_t call, full, off, edge;
};

static int64_t ending_after(const struct spans *spans, int64_t at, int64_t time)
{
    while (at < spans->count && spans->end[at] <= time)
        at++;
    return at;
}

static int is_open(const struct spans *spans, int64_t at, int64_t time)
{
    return at < spans->count && spans->start[at] <= time;
}

/* When the span at a cursor begins or, where it has, ends; `least` if that is earlier. */
static int64_t next_edge(const struct spans *spans, int64_t at, int64_t time, int64_t least)
{
    if (at == spans->count)
        return least;
    int64_t next = spans->start[at] <= time ? spans->end[at] : spans->start[at];
    return next < least ? next : least;
}

static void move(const struct activity *of, struct cursors *at, int64_t time)
{
    at->call = ending_after(&of->calls, at->call, time);
    at->full = ending_after(&of->queue_full, at->full, time);
    at->off = ending_after(&of->off_cpu, at->off, time);
    while (at->edge < of->edge_count && of->edges[at->edge] <= time)
        at->edge++;
}

static int32_t activity_at(const struct activity *of, const struct cursors *at, int64_t time)
{
    if (is_open(&of->queue_full, at->full, time))
        return QUEUE_FULL;
    if (is_open(&of->calls, at->call, time))
        return of->names[at->call];
    return is_open(&of->off_cpu, at->off, time) ? OFF_CPU : OUTSIDE_CUDA;
}

static int64_t part_end(const struct activity *of, const struct cursors *at, int64_t time,
                        int64_t end)
{
    end = next_edge(&of->calls, at->call, time, end);
    end = next_edge(&of->queue_full, at->full, time, end);
    end = next_edge(&of->off_cpu, at->off, time, end);
    return at->edge < of->edge_count && of->edges[at->edge] < end ? of->edges[at->edge] : end;
}

/* The parts of some gaps, in order. From `queued` on, the work behind a gap is in flight. */
EXPORTED void traceview_split_gaps(const struct spans *gaps, const int64_t *queued,
                                   const struct activity *of, struct parts *parts)
{
    struct cursors at = {0, 0, 0, 0};
    parts->count = 0;
    for (int64_t gap = 0; gap < gaps->count; gap++)
        for (int64_t time = gaps->start[gap], end; time < gaps->end[gap]; time = end) {
            int in_flight = time >= queued[gap];
            int64_t row = parts->count++;
            move(of, &at, time);
            end = part_end(of, &at, time, in_flight ? gaps->end[gap] : queued[gap]);
            parts->gap[row] = (int32_t)gap;
            parts->start[row] = time;
            parts->end[row] = end;
            parts->activity[row] = in_flight ? IN_FLIGHT : activity_at(of, &at, time);
        }
}
