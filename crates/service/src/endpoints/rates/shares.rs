//! How running tasks share what rate rules leave them.

/// A bound on the bytes per second of several tasks together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bound {
    /// Bytes per second.
    pub most: u64,
    /// Which tasks it is for, by their places in the list.
    pub of: Vec<usize>,
}

/// Bytes per second of each task; `None`: no bound holds for it. `wished` is what its owner allows it at the most.
///
/// Max-min fairness: all tasks get the same, until a bound is used up or a task has what it wishes; what it leaves is the others'.
pub fn shares(wished: &[Option<u64>], bounds: &[Bound]) -> Vec<Option<u64>> {
    let mut given: Vec<Option<u64>> = vec![None; wished.len()];
    loop {
        let open = |bound: &Bound| bound.of.iter().filter(|&&task| given[task].is_none()).count() as u64;
        let taken = |bound: &Bound| bound.of.iter().filter_map(|&task| given[task]).sum::<u64>();
        let full = |bound: &Bound| {
            let open = open(bound);
            (open > 0).then(|| bound.most.saturating_sub(taken(bound)) / open)
        };
        let Some(level) = bounds.iter().filter_map(full).min() else { return given };
        let is_bound = |task: usize| bounds.iter().any(|bound| bound.of.contains(&task));
        let content = |task: &usize| given[*task].is_none() && wished[*task].is_some_and(|wish| wish <= level);
        let least = (0..wished.len()).filter(content).filter(|task| is_bound(*task)).min_by_key(|task| wished[*task]);
        if let Some(task) = least {
            given[task] = wished[task];
            continue;
        }
        let tight: Vec<usize> =
            bounds.iter().filter(|bound| full(bound) == Some(level)).flat_map(|bound| bound.of.clone()).collect();
        for task in tight {
            given[task].get_or_insert(level.max(1));
        }
    }
}

/// The bounds, by their places in the list, that keep a task from having more than it was given.
pub fn tight(task: usize, given: &[Option<u64>], bounds: &[Bound]) -> Vec<usize> {
    let is_full = |bound: &Bound| {
        let used: u64 = bound.of.iter().filter_map(|&task| given[task]).sum();
        // What cannot be divided is left over.
        used + bound.of.len() as u64 > bound.most
    };
    let holds = |bound: &Bound| bound.of.contains(&task) && is_full(bound);
    (0..bounds.len()).filter(|&at| holds(&bounds[at])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bound(most: u64, of: &[usize]) -> Bound {
        Bound { most, of: of.to_vec() }
    }

    #[test]
    fn what_one_does_not_want_is_the_others() {
        let given = shares(&[None, Some(10), None, None], &[bound(100, &[0, 1, 2])]);
        assert_eq!(given, [Some(45), Some(10), Some(45), None]);
    }

    #[test]
    fn the_tightest_bound_comes_first_and_leaves_the_rest_of_the_wider_one() {
        let given = shares(&[None; 3], &[bound(90, &[0, 1, 2]), bound(10, &[0])]);
        assert_eq!(given, [Some(10), Some(40), Some(40)]);
    }

    #[test]
    fn what_holds_a_task_back_is_told() {
        let bounds = [bound(91, &[0, 1, 2]), bound(10, &[0]), bound(1000, &[1])];
        let given = shares(&[None, None, Some(5)], &bounds);
        assert_eq!(given, [Some(10), Some(76), Some(5)]);
        assert_eq!([0, 1, 2].map(|task| tight(task, &given, &bounds)), [vec![0, 1], vec![0], vec![0]]);
        assert_eq!(tight(0, &shares(&[Some(5)], &bounds[1..2]), &bounds[1..2]), Vec::<usize>::new());
    }

    #[test]
    fn everybody_gets_something() {
        assert_eq!(shares(&[None; 3], &[bound(2, &[0, 1, 2])]), [Some(1); 3]);
        assert_eq!(shares(&[], &[bound(2, &[])]), []);
    }

    fn bounds(tasks: usize) -> impl Strategy<Value = Vec<Bound>> {
        let bound = (1000u64..100_000, prop::collection::btree_set(0..tasks, 0..=tasks));
        prop::collection::vec(bound, 0..6)
            .prop_map(|all| all.into_iter().map(|(most, of)| Bound { most, of: of.into_iter().collect() }).collect())
    }

    proptest! {
        #[test]
        fn no_bound_is_exceeded_and_none_who_could_have_more_has_less(
            wished in prop::collection::vec(prop::option::of(1u64..50_000), 8),
            bounds in bounds(8),
        ) {
            let given = shares(&wished, &bounds);
            let sum = |bound: &Bound| bound.of.iter().filter_map(|&task| given[task]).sum::<u64>();
            for bound in &bounds {
                prop_assert!(sum(bound) <= bound.most, "{bound:?}: {given:?}");
            }
            for (task, share) in given.iter().enumerate() {
                let its: Vec<&Bound> = bounds.iter().filter(|bound| bound.of.contains(&task)).collect();
                prop_assert_eq!(share.is_some(), !its.is_empty());
                let Some(share) = *share else { continue };
                prop_assert!(wished[task].is_none_or(|wish| share <= wish));
                // Whoever has less than they wish is held by a bound that is used up, in which nobody has more.
                let held = its.iter().any(|bound| {
                    let used = sum(bound) + bound.of.len() as u64 > bound.most;
                    used && bound.of.iter().all(|&other| given[other].unwrap_or(0) <= share + bound.of.len() as u64)
                });
                prop_assert!(held || wished[task] == Some(share), "task {task} of {given:?}");
            }
        }
    }
}
