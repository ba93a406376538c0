/* The graph of a recording, replayed and walked back. See graph.py and blame.py for what it means. */

#include <stdint.h>

#ifdef _WIN32
#define EXPORTED __declspec(dllexport)
#else
#define EXPORTED __attribute__((visibility("default")))
#endif

/* Edges by item: those of item i are first[i] to first[i + 1]; on < 0 is no edge. */
struct edges {
    const int64_t *first;
    const int32_t *on;
    const int64_t *lag;
    const uint8_t *kind;
};

struct graph {
    int64_t calls, items, entries;
    const int32_t *order;
    const int64_t *start, *end, *own;
    struct edges begin, finish;
    int64_t latency;
};

enum { LAUNCH = 1, LOOSE = 128 };

static int64_t ready(const struct edges *edges, int64_t item, const int64_t *start,
                     const int64_t *end, int64_t otherwise)
{
    int64_t latest = INT64_MIN;
    for (int64_t at = edges->first[item]; at < edges->first[item + 1]; at++) {
        int32_t on = edges->on[at];
        if (on < 0)
            continue;
        int64_t time = (edges->kind[at] == LAUNCH ? start[on] : end[on]) + edges->lag[at];
        if (time > latest)
            latest = time;
    }
    return latest == INT64_MIN ? otherwise : latest;
}

/* Edges in the making: `loose` ones did not hold their item up. */
struct made {
    int64_t count;
    const int32_t *of, *on;
    const int64_t *lag;
    const uint8_t *kind, *loose;
};

/* Edges by item, in the order given, the binding one of each with the lag that was recorded and all
 * others with less. `time` is when an item began, or a call returned. `first` has an entry more than
 * there are items. */
EXPORTED void traceview_bind(const struct made *made, int64_t items, const int64_t *start,
                             const int64_t *end, const int64_t *time, int64_t *first, int32_t *on,
                             int64_t *lag, uint8_t *kind)
{
    for (int64_t item = 0; item <= items; item++)
        first[item] = 0;
    for (int64_t at = 0; at < made->count; at++)
        first[made->of[at]]++;
    int64_t sum = 0;
    for (int64_t item = 0; item <= items; item++) {
        int64_t own = first[item];
        first[item] = sum;
        sum += own;
    }
    for (int64_t at = 0; at < made->count; at++) {
        int64_t place = first[made->of[at]]++;
        on[place] = made->on[at];
        lag[place] = made->lag[at];
        kind[place] = (uint8_t)(made->kind[at] | (made->loose[at] ? LOOSE : 0));
    }
    for (int64_t item = items; item > 0; item--)
        first[item] = first[item - 1];
    first[0] = 0;
    for (int64_t item = 0; item < items; item++) {
        int64_t latest = INT64_MIN;
        for (int64_t at = first[item]; at < first[item + 1]; at++) {
            int64_t ready = kind[at] == LAUNCH ? start[on[at]] : end[on[at]];
            if (kind[at] < LOOSE && ready + lag[at] > latest)
                latest = ready + lag[at];
        }
        for (int64_t at = first[item]; at < first[item + 1]; at++) {
            int loose = kind[at] >= LOOSE;
            kind[at] &= LOOSE - 1;
            int64_t ready = kind[at] == LAUNCH ? start[on[at]] : end[on[at]];
            int64_t since = time[item] - ready;
            if (!loose && ready + lag[at] == latest)
                lag[at] = since;
            else if (lag[at] >= since)
                lag[at] = since - 1;
        }
    }
}

/* When each item begins and ends, as its edges and own times have it: `start` and `end` are
 * written. Items behind nothing begin as recorded. */
EXPORTED void traceview_replay(const struct graph *graph, int64_t *start, int64_t *end)
{
    for (int64_t entry = 0; entry < graph->entries; entry++) {
        int32_t item = graph->order[entry];
        if (item >= 0) {
            start[item] = ready(&graph->begin, item, start, end, graph->start[item]);
            end[item] = start[item] + graph->own[item];
        } else {
            item = ~item;
            int64_t returns = ready(&graph->finish, item, start, end, end[item]);
            if (returns > end[item])
                end[item] = returns;
        }
    }
}

enum part { PART_LAUNCH, PART_CALL, PART_HOST, PART_TAIL, PART_WAKE, PART_PITCH, PART_HELD,
            PART_OTHER, PART_UNKNOWN };

struct parts {
    int64_t room, count;
    int32_t *gap, *item;
    int64_t *start, *end;
    uint8_t *kind;
};

static void say(struct parts *parts, int64_t gap, int64_t since, int64_t until, enum part kind,
                int64_t item)
{
    if (until <= since)
        return;
    if (parts->count < parts->room) {
        parts->gap[parts->count] = (int32_t)gap;
        parts->start[parts->count] = since;
        parts->end[parts->count] = until;
        parts->kind[parts->count] = (uint8_t)kind;
        parts->item[parts->count] = (int32_t)item;
    }
    parts->count++;
}

/* The edge that recorded times are explained by: whose item ended last, lag included. */
static int64_t binding(const struct edges *edges, int64_t item, const int64_t *start,
                       const int64_t *end, int64_t *launch)
{
    int64_t found = -1, latest = INT64_MIN;
    *launch = -1;
    for (int64_t at = edges->first[item]; at < edges->first[item + 1]; at++) {
        int32_t on = edges->on[at];
        if (on < 0)
            continue;
        int is_launch = edges->kind[at] == LAUNCH;
        if (is_launch)
            *launch = at;
        int64_t time = (is_launch ? start[on] : end[on]) + edges->lag[at];
        if (time > latest) {
            latest = time;
            found = at;
        }
    }
    return found;
}

#define BACK(to) ((to) > from ? (to) : from)

/* Work that starts so much later than its launch takes was held by something else (graph.HELD_NS). */
#define HELD 20000

/* Each gap from its end back to its start, along what held up the work that ended it, as parts in
 * that order. `after` is the item that ended a gap. Where `room` is too small only the count
 * means something. */
EXPORTED void traceview_walk(const struct graph *graph, const int64_t *gap_start,
                             const int64_t *gap_end, const int32_t *after, int64_t gaps,
                             struct parts *parts)
{
    const int64_t *start = graph->start, *end = graph->end;
    parts->count = 0;
    for (int64_t gap = 0; gap < gaps; gap++) {
        int64_t from = gap_start[gap], time = gap_end[gap], item = after[gap], launch;
        /* Clocks of a CPU and a GPU may disagree: a step that does not lead back ends the walk. */
        int64_t left = 2 * graph->items;
        while (time > from && left-- > 0) {
            if (item < 0) {
                say(parts, gap, from, time, PART_UNKNOWN, -1);
                time = from;
                break;
            }
            if (item >= graph->calls) {
                int64_t at = binding(&graph->begin, item, start, end, &launch);
                if (at < 0) {
                    item = -1;
                    continue;
                }
                int32_t on = graph->begin.on[at];
                if (at == launch) {
                    int64_t usual = start[on] + graph->latency;
                    /* A long call counts whole; what comes behind it and its latency was held. */
                    if (end[on] > usual)
                        usual = end[on];
                    if (time > usual + HELD) {
                        say(parts, gap, BACK(usual), time, PART_HELD, item);
                        time = usual;
                    }
                    if (time > from)
                        say(parts, gap, BACK(start[on]), time, PART_LAUNCH, on);
                    time = start[on] < time ? start[on] : time;
                    item = on;
                    continue;
                }
                say(parts, gap, BACK(end[on]), time, PART_PITCH, on);
                time = end[on] < time ? end[on] : time;
                if (time > from)
                    say(parts, gap, BACK(start[on]), time, PART_OTHER, on);
                time = start[on] < time ? start[on] : time;
                item = on;
                continue;
            }
            int64_t at = binding(&graph->begin, item, start, end, &launch);
            if (at < 0) {
                item = -1;
                continue;
            }
            int32_t on = graph->begin.on[at];
            say(parts, gap, BACK(end[on]), time, graph->begin.kind[at] ? PART_WAKE : PART_HOST,
                item);
            time = end[on] < time ? end[on] : time;
            item = on;
            if (time <= from)
                break;
            at = binding(&graph->finish, item, start, end, &launch);
            if (at >= 0) {
                int32_t waited = graph->finish.on[at];
                int64_t free = start[item] + graph->own[item];
                if (end[waited] + graph->finish.lag[at] >= time && end[waited] > start[item] &&
                    time > free) {
                    say(parts, gap, BACK(end[waited]), time, PART_TAIL, item);
                    time = end[waited] < time ? end[waited] : time;
                    if (time > from)
                        say(parts, gap, BACK(start[waited]), time, PART_OTHER, waited);
                    time = start[waited] < time ? start[waited] : time;
                    item = waited;
                    continue;
                }
            }
            say(parts, gap, BACK(start[item]), time, PART_CALL, item);
            time = start[item] < time ? start[item] : time;
        }
        if (time > from)
            say(parts, gap, from, time, PART_UNKNOWN, -1);
    }
}
