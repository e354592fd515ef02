// kernels/attention/tasks.cl: how persistent work-groups share the tasks of attention: TILE_M rows of the scores of a head
// each. Comes after attention/parameters.cl.
#define TASKS 1
typedef struct {
  int tiles, heads, batches;  // tiles: of a head; heads: of the rows
} Tasks;
// A work-group's task. rows: its first row.
typedef struct {
  int rows, head, batch;
} Task;

// Returns the number of the work-group's task n. The groups take their tasks in turn, then in the opposite order, and so
// on. So those that began with the longest rows of a causal mask get the shortest of the next ones.
ALWAYS_INLINE int task_number(const int n) {
  const int groups = get_num_groups(0), group = get_group_id(0);
  return n * groups + (n & 1 ? groups - 1 - group : group);
}
#define FOR_TASKS(n, tasks) for (int n = 0; task_number(n) < (tasks).tiles * (tasks).heads * (tasks).batches; ++n)

// Returns the work-group's task n. Neighbouring work-groups have the same columns, which they find in the cache.
// With a causal mask the longest rows come first. To stay in the cache, these are the rows of as many heads at a time as
// give each work-group four tasks.
ALWAYS_INLINE Task task_at(const int n, const Tasks all) {
  const int number = task_number(n);
  int tile = number % all.tiles, head = number / all.tiles;
  if (CAUSAL) {
    const int most = max((int)get_num_groups(0) * 4 / all.tiles, 1), first = number / (most * all.tiles) * most;
    const int at = number - first * all.tiles, heads = min(most, all.heads * all.batches - first);
    tile = ROWS_ARE_KEYS ? at / heads : all.tiles - 1 - at / heads;
    head = first + at % heads;
  }
  const Task task = {tile * TILE_M, head % all.heads, head / all.heads};
  return task;
}
