//! What every connector promises, as cases that any implementation can run.
//!
//! Each case is one behaviour; it gets an empty collection, as two instances of the connector that
//! share it (as two hosts would), and panics when the promise is broken. Cases that need what the
//! capabilities do not offer pass without doing anything.
//!
//! ```
//! whimbrel_connector::contract_tests!(memory, || {
//!     let storage = whimbrel_connector::memory::Memory::new();
//!     (storage.clone(), storage, ())
//! });
//! ```

// The name of a case says what it promises.
#[allow(missing_docs)]
mod attributes;
#[allow(missing_docs)]
mod chunks;
#[allow(missing_docs)]
mod content;
#[allow(missing_docs)]
mod errors;
mod help;
#[allow(missing_docs)]
mod names;
#[allow(missing_docs)]
mod sessions;

use crate::Connector;

pub use attributes::*;
pub use chunks::*;
pub use content::*;
pub use errors::*;
pub use names::*;
pub use sessions::*;

/// One promise, tried on two instances that share an empty collection.
pub type Case = fn(&dyn Connector, &dyn Connector);

/// Calls the macro `$then` with its arguments in brackets and then the name of every case.
#[doc(hidden)]
#[macro_export]
macro_rules! contract_cases {
    ([$($then:tt)+] $(, $argument:tt)*) => {
        $($then)+! {
            [$($argument)*]
            a_file_reads_back_as_written
            an_empty_file_can_be_written_and_read
            reads_end_at_the_end_of_the_file
            blocks_may_arrive_in_any_order
            many_writers_fill_one_file
            a_small_file_is_put_in_one_act
            what_is_put_replaces_a_file_and_leftovers_of_its_name
            where_nothing_can_be_put_says_why
            storage_for_one_operation_is_the_same_storage
            holes_stay_holes
            an_open_file_outlives_its_name
            written_data_can_be_read_back_before_commit
            only_synced_data_is_durable
            all_that_is_below_a_directory_is_made_durable
            a_changed_source_is_refused
            nothing_has_the_final_name_before_commit
            commit_replaces_in_one_step
            committing_twice_is_harmless
            whether_a_session_is_committed_is_told
            names_of_unfinished_files_are_given_to_no_file
            abandoning_leaves_nothing
            abandoning_after_commit_keeps_the_file
            resume_goes_on_with_the_unfinished_file
            resume_changes_a_finished_file_in_place
            resume_without_anything_starts_anew
            update_keeps_the_bytes_outside
            update_creates_what_is_missing
            the_end_of_a_file_is_given_to_one_writer
            an_update_that_wrote_nothing_leaves_no_file_that_it_made
            a_late_writer_cannot_change_what_was_committed
            replace_throws_leftovers_away
            a_writer_that_was_taken_over_cannot_commit
            an_update_of_a_file_replaced_meanwhile_cannot_commit
            commit_cuts_and_extends_to_the_size_asked_for
            sessions_survive_the_journey_to_another_host
            foreign_sessions_are_refused
            many_hosts_continue_one_file
            hosts_that_begin_to_continue_at_once_get_the_same_file
            a_session_to_continue_is_its_path_and_its_token
            a_link_is_continued_where_it_leads
            what_is_appended_to_a_journal_is_read_by_every_host
            appends_of_many_writers_never_mix
            a_journal_is_cut_only_where_it_was_seen
            what_is_noted_follows_what_was_seen
            a_journal_goes_with_its_file
            a_new_file_never_has_the_journal_of_the_one_before
            what_is_written_in_chunks_is_not_resumed_by_its_size
            whatever_bears_a_hidden_name_is_told
            what_is_unfinished_is_neither_cut_nor_extended
            only_files_to_continue_have_journals
            extents_tell_what_is_data_and_where_it_ends
            what_is_cleared_is_a_hole_and_reads_as_zeros
            a_file_is_extended_with_a_hole_and_never_cut
            room_is_at_least_what_the_file_takes
            reserving_changes_neither_size_nor_content
            dropping_what_is_cached_makes_it_durable_and_keeps_it
            attributes_are_kept
            what_is_put_has_its_attributes
            replacing_keeps_the_mode_of_the_old_file
            replacing_takes_from_a_program_whom_it_runs_as
            what_is_unfinished_is_its_owners_alone
            what_others_could_read_of_an_earlier_attempt_they_can_no_longer
            a_private_file_is_never_seen_with_another_mode
            a_file_made_under_its_name_never_gives_more_than_it_will
            plain_attributes_say_of_no_program_whom_it_runs_as
            attributes_of_what_exists_can_be_changed
            links_keep_their_text
            removing_a_link_keeps_its_target
            writing_through_a_link_changes_its_target
            links_in_the_way_are_followed_inside_the_root
            circular_links_are_refused
            truncate_cuts_and_extends
            directories_come_and_go
            a_long_listing_streams
            a_sorted_listing_is_counted_up_to_a_limit
            listings_describe_links_themselves
            names_need_not_be_utf8
            the_longest_names_can_be_written
            rename_replaces_a_file
            what_is_renamed_durably_is_renamed
            rename_moves_between_directories
            a_directory_cannot_move_into_itself
            remove_tree_spares_what_links_point_to
            a_deep_tree_can_be_removed
            what_is_missing_is_not_found
            what_exists_is_not_created_again
            directories_are_no_files
            files_are_no_directories
            full_directories_stay
            the_root_stays
            offsets_beyond_the_largest_file_are_refused
            who_may_not_replace_gets_free_names_only
            invalid_attributes_are_refused
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! contract_table {
    ([] $($case:ident)*) => {
        &[$((stringify!($case), $crate::contract::$case as $crate::contract::Case)),*]
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! contract_test_functions {
    ([$module:ident $factory:tt] $($case:ident)*) => {
        #[cfg(test)]
        mod $module {
            use super::*;
            $(
                #[test]
                fn $case() {
                    let (first, second, _guard) = $factory();
                    $crate::contract::$case(&first, &second);
                }
            )*
        }
    };
}

/// Makes one test of every case, in a module of that name.
///
/// The second argument is called for every case and gives two instances that share an empty
/// collection, and anything that has to live as long as the test.
#[macro_export]
macro_rules! contract_tests {
    ($module:ident, $factory:expr) => {
        $crate::contract_cases!([$crate::contract_test_functions], $module, ($factory));
    };
}

/// Every case with its name.
pub fn all() -> &'static [(&'static str, Case)] {
    crate::contract_cases!([crate::contract_table])
}
