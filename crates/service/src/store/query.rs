//! Lists of tasks: filters, order, pages.

use uuid::Uuid;
use whimbrel_engine::listing::Timestamp;
use whimbrel_engine::task::Status;

use super::database::{Row, Value, values};
use super::tasks::{COLUMNS, State};
use super::time::{from_micros, micros};
use super::{Store, StoreError};
use crate::task::Task;

/// A wish about labels. Case does not matter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// What it is to be; where `is_pattern`, with `*` for anything.
    pub text: String,
    /// Whether `*` stands for anything.
    pub is_pattern: bool,
    /// Whether it must not be so.
    pub is_not: bool,
}

/// By what a list of tasks is ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// The task's identity.
    Id,
    /// `DELETE`, `TRANSFER`.
    Type,
    /// Its status' name.
    Status,
    /// Its label, whatever its case; tasks without one first.
    Label,
    /// When it was submitted.
    RequestTime,
    /// When it was over; tasks that are not first.
    CompletionTime,
    /// When it expires.
    Deadline,
    /// Faults until now.
    Faults,
}

/// Which tasks are wanted, in which order; the default is all, the newest first. Of each list a task fits one, or the list is empty.
#[derive(Debug, Clone, Default)]
pub struct TaskQuery {
    /// Whose.
    pub owner: Option<Uuid>,
    /// Which.
    pub ids: Vec<Uuid>,
    /// Of which type: `TRANSFER`, `DELETE`.
    pub types: Vec<String>,
    /// Where they stand.
    pub statuses: Vec<Status>,
    /// Labels: one of those that must be, and none of those that must not.
    pub labels: Vec<Label>,
    /// Collections, any of which is an end of theirs.
    pub collections: Vec<Uuid>,
    /// Collections, one of which is their source, or where they delete.
    pub sources: Vec<Uuid>,
    /// Collections, one of which is their destination.
    pub destinations: Vec<Uuid>,
    /// Whether they are paused.
    pub paused: Option<bool>,
    /// Fewest faults.
    pub min_faults: u64,
    /// Submitted not before this and not after that.
    pub requested: (Option<Timestamp>, Option<Timestamp>),
    /// Over not before this and not after that; with either, only those that are.
    pub completed: (Option<Timestamp>, Option<Timestamp>),
    /// Only those behind a place in the order of submission; places do not move when tasks come and go, as offsets do.
    pub behind: Option<TaskPlace>,
    /// Order, and whether it is a descending one; the first counts most.
    pub order: Vec<(Order, bool)>,
    /// How many to leave out.
    pub offset: u64,
    /// How many to tell.
    pub limit: u32,
}

/// Where a task stands in the order of submission; those of one moment by their ids, the smallest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskPlace {
    /// When the task was submitted.
    pub time: Timestamp,
    /// The task.
    pub id: Uuid,
    /// Whether older ones come behind it.
    pub is_descending: bool,
}

impl TaskPlace {
    /// The place of a task.
    pub fn of(task: &Task, is_descending: bool) -> Self {
        Self { time: task.requested, id: task.id, is_descending }
    }

    /// As clients give it back: `MICROSECONDS.ID`.
    pub fn key(self) -> String {
        format!("{}.{}", micros(self.time), self.id)
    }

    /// The place of a key, if it is one.
    pub fn of_key(key: &str, is_descending: bool) -> Option<Self> {
        let (time, id) = key.split_once('.')?;
        Some(Self { time: from_micros(time.parse().ok()?), id: id.parse().ok()?, is_descending })
    }
}

/// Tasks that are read in one go where all are wanted.
const AT_ONCE: u32 = 500;

impl Store {
    /// Tasks, and how many there are in all, without `offset` and `limit`.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn tasks(&self, query: &TaskQuery) -> Result<(Vec<Task>, u64), StoreError> {
        let filter = Filter::of(query);
        let mut tx = self.read().await?;
        let sql = format!("SELECT COUNT(*) FROM tasks WHERE {}", filter.sql);
        let total = tx.query(&sql, filter.values.clone()).await?.first_mut().map_or(Ok(0), Row::count)?;
        let (limit, offset) = (filter.values.len() + 1, filter.values.len() + 2);
        let sql = format!(
            "SELECT {COLUMNS} FROM tasks WHERE {} ORDER BY {} LIMIT ${limit} OFFSET ${offset}",
            filter.sql,
            order(&query.order)
        );
        let mut values = filter.values;
        values.extend(values![query.limit, i64::try_from(query.offset).unwrap_or(i64::MAX)]);
        let rows = tx.query(&sql, values).await?;
        let tasks = rows.into_iter().map(|row| Ok(State::read(row)?.task)).collect::<Result<_, StoreError>>()?;
        Ok((tasks, total))
    }

    /// All tasks of a query, the oldest first, whatever its page and order are.
    ///
    /// All before anything is done with them: what changes may fall out of the query, and others be passed over.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn all_tasks(&self, query: TaskQuery) -> Result<Vec<Task>, StoreError> {
        let order = vec![(Order::RequestTime, false), (Order::Id, false)];
        let mut query = TaskQuery { order, offset: 0, limit: AT_ONCE, ..query };
        let mut all = Vec::new();
        loop {
            let (tasks, _) = self.tasks(&query).await?;
            let is_full = tasks.len() == AT_ONCE as usize;
            query.behind = tasks.last().map(|last| TaskPlace::of(last, false));
            all.extend(tasks);
            if !is_full {
                return Ok(all);
            }
        }
    }
}

/// A condition with its parameters. What is not asked for is not in it, so that databases plan for what is.
pub(super) struct Filter {
    pub(super) sql: String,
    pub(super) values: Vec<Value>,
}

impl Filter {
    /// One that everything fits.
    pub(super) fn all() -> Self {
        Self { sql: "1 = 1".into(), values: Vec::new() }
    }

    fn of(query: &TaskQuery) -> Self {
        let mut filter = Self::all();
        filter.one_of(&["owner"], query.owner);
        filter.one_of(&["id"], query.ids.iter().copied());
        filter.one_of(&["type"], query.types.iter().map(String::as_str));
        filter.one_of(&["status"], query.statuses.iter().map(|status| status.name()));
        filter.one_of(&["source", "destination"], query.collections.iter().copied());
        filter.one_of(&["source"], query.sources.iter().copied());
        filter.one_of(&["destination"], query.destinations.iter().copied());
        filter.one_of(&["paused"], query.paused);
        filter.labels(&query.labels);
        filter.bound("faults >=", (query.min_faults > 0).then_some(query.min_faults.cast_signed()));
        filter.bound("requested >=", query.requested.0.map(micros));
        filter.bound("requested <=", query.requested.1.map(micros));
        filter.bound("completed >=", query.completed.0.map(micros));
        filter.bound("completed <=", query.completed.1.map(micros));
        if let Some(TaskPlace { time, id, is_descending }) = query.behind {
            let (time, id) = (filter.place(micros(time)), filter.place(id));
            let sign = if is_descending { '<' } else { '>' };
            filter.sql += &format!(" AND (requested {sign} {time} OR requested = {time} AND id > {id})");
        }
        filter
    }

    /// Where a parameter stands.
    pub(super) fn place(&mut self, value: impl Into<Value>) -> String {
        self.values.push(value.into());
        format!("${}", self.values.len())
    }

    /// Demands `condition` of a value, if there is one.
    pub(super) fn bound(&mut self, condition: &str, value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            let place = self.place(value);
            self.sql += &format!(" AND {condition} {place}");
        }
    }

    fn one_of<V: Into<Value>>(&mut self, columns: &[&str], values: impl IntoIterator<Item = V>) {
        let places: Vec<String> = values.into_iter().map(|value| self.place(value)).collect();
        if !places.is_empty() {
            let places = places.join(", ");
            let any: Vec<String> = columns.iter().map(|column| format!("{column} IN ({places})")).collect();
            self.sql += &format!(" AND ({})", any.join(" OR "));
        }
    }

    fn labels(&mut self, labels: &[Label]) {
        let (not, be): (Vec<&Label>, Vec<&Label>) = labels.iter().partition(|label| label.is_not);
        let fitting: Vec<String> = be.into_iter().map(|label| self.fits(label)).collect();
        if !fitting.is_empty() {
            self.sql += &format!(" AND ({})", fitting.join(" OR "));
        }
        for label in not {
            let fits = self.fits(label);
            self.sql += &format!(" AND NOT {fits}");
        }
    }

    fn fits(&mut self, label: &Label) -> String {
        // Folded here, and not by databases, which differ in what they know of letters.
        let text = label.text.to_lowercase();
        if !label.is_pattern {
            let place = self.place(text);
            return format!("COALESCE(label, '') = {place}");
        }
        let escaped = text.replace('\\', "\\\\").replace('%', "\\%").replace('_', "\\_");
        let place = self.place(escaped.replace('*', "%"));
        format!("COALESCE(label, '') LIKE {place} ESCAPE '\\'")
    }
}

fn order(order: &[(Order, bool)]) -> String {
    let newest = [(Order::RequestTime, true)];
    let order = if order.is_empty() { &newest } else { order };
    let column = |(order, is_descending): &(Order, bool)| {
        let column = match order {
            Order::Id => "id",
            Order::Type => "type",
            Order::Status => "status",
            Order::Label => "COALESCE(label, '')",
            Order::RequestTime => "requested",
            Order::CompletionTime => "COALESCE(completed, 0)",
            Order::Deadline => "deadline",
            Order::Faults => "faults",
        };
        if *is_descending { format!("{column} DESC") } else { column.to_owned() }
    };
    // Always whole, so that pages do not overlap.
    order.iter().map(column).chain(["id".to_owned()]).collect::<Vec<_>>().join(", ")
}
