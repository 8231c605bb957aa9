//! Every option of `globus-gridftp-server` 13.24, and what becomes of it.

use super::Weight;

/// An option.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// Its names: in files first, then on the command line where that is another one.
    pub names: &'static [&'static str],
    /// What becomes of it.
    pub fate: Fate,
}

/// What becomes of an option.
#[derive(Debug, Clone, Copy)]
pub enum Fate {
    /// A key of ours with the same meaning: 0 and 1.
    Flag(&'static str),
    /// A key of ours with the same meaning: a number, with `K`, `M`, `G`.
    Number(&'static str),
    /// A key of ours with the same meaning: a text.
    Text(&'static str),
    /// Something of its own.
    Special(Special),
    /// There is nothing to say: why.
    Needless(&'static str),
    /// Nothing of ours does this: why, or what instead. What is missed.
    Gone(Weight, &'static str),
    /// As [`Fate::Gone`] unless its value is this, which is how things are here.
    Unless(&'static str, Weight, &'static str),
}

/// What needs code of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Special {
    /// Of both comes where we listen.
    Port,
    /// As above.
    ControlInterface,
    /// Control and data interface at once.
    Hostname,
    /// An address, not a name.
    DataInterface,
    /// `50000,51000`.
    PortRange,
    /// Logins without a password.
    Anonymous,
    /// Rules for paths.
    Paths,
    /// Networks whose logins are taken, and no others.
    AllowFrom,
    /// Networks whose logins are not.
    DenyFrom,
}

use Fate::{Flag, Gone, Needless, Number, Special as Own, Text, Unless};
use Weight::{Differs, Missing, Note, Open};

const fn row(names: &'static [&'static str], fate: Fate) -> Row {
    Row { names, fate }
}

const INFORMATION: &str = "it only prints something";
const PROCESSES: &str = "one monitor, one front and one data process for each account serve all connections; a service manager puts them into the background";
const THREADS: &str = "every transfer has threads of its own";
const IPC: &str = "data nodes join the front by a secret that both know: see node_listen, data_node_of and node_secret";
const SHARING: &str = "there is no sharing by special logins";
const MODULES: &str = "modules of the real server cannot be loaded";
const DRIVERS: &str = "there are no stacks of drivers: data connections are TCP or TLS";
const LOGS: &str = "logs go to standard error, for a service manager to keep; WHIMBREL_LOG sets what is logged";
const STRIPES: &str = "our clients and servers agree on stripes and block sizes by themselves";
const MESSAGES: &str = "only the greeting has a text of its own: banner";
const HOMES: &str = "logins begin in the home directory of their account where that is below root, else in /";
const MARKERS: &str = "markers are sent as clients ask for them";

/// All of them, in the order of its help.
pub const OPTIONS: &[Row] = &[
    row(&["help"], Needless(INFORMATION)),
    row(&["longhelp"], Needless(INFORMATION)),
    row(&["version"], Needless(INFORMATION)),
    row(&["versions"], Needless(INFORMATION)),
    row(&["inetd"], Unless("0", Differs, "start `whimbrel dtn --stdio` from inetd, or let it listen by itself")),
    row(&["daemon"], Needless(PROCESSES)),
    row(&["detach"], Needless(PROCESSES)),
    row(&["ssh"], Unless("0", Differs, "`whimbrel dtn --install-sshftp` sets sshftp up")),
    row(&["exec"], Needless(PROCESSES)),
    row(&["chdir"], Needless("the working directory of a process means nothing to clients")),
    row(&["chdir_to"], Needless("the working directory of a process means nothing to clients")),
    row(&["threads"], Needless(THREADS)),
    row(&["fork"], Needless(PROCESSES)),
    row(&["fork_fallback"], Needless(PROCESSES)),
    row(
        &["single"],
        Unless("0", Missing, "a server serves until it is stopped; `whimbrel dtn --stdio` serves one connection"),
    ),
    row(
        &["chroot_path"],
        Gone(Open, "name a directory by root: clients see it as / and get out of it by no path or link"),
    ),
    row(
        &["auth_level"],
        Gone(Differs, "accounts and their file permissions always decide; nothing is switched off for root"),
    ),
    row(
        &["process_user"],
        Gone(Open, "every login has the account of its identity; map all of them to one in the grid-mapfile"),
    ),
    row(&["process_group"], Gone(Missing, "every login has the groups of its account")),
    row(&["ipc_allow_from"], Needless(IPC)),
    row(&["ipc_deny_from"], Needless(IPC)),
    row(&["allow_from"], Own(Special::AllowFrom)),
    row(&["deny_from"], Own(Special::DenyFrom)),
    row(&["encrypt_data"], Flag("encrypt_data")),
    row(&["secure_ipc"], Needless(IPC)),
    row(&["ipc_auth_mode"], Needless(IPC)),
    row(&["ipc_user_name"], Needless(IPC)),
    row(&["ipc_subject"], Needless(IPC)),
    row(&["ipc_credential"], Needless(IPC)),
    row(&["ipc_cookie"], Needless(IPC)),
    row(&["allow_anonymous"], Own(Special::Anonymous)),
    row(
        &["anonymous_names_allowed"],
        Gone(Missing, "anonymous users are called anonymous or ftp, and nobody else is one"),
    ),
    row(&["anonymous_user"], Text("anonymous_user")),
    row(&["anonymous_group"], Gone(Missing, "anonymous users have the groups of their account")),
    row(&["sharing_dn"], Gone(Missing, SHARING)),
    row(&["sharing_state_dir"], Needless(SHARING)),
    row(&["sharing_control"], Needless(SHARING)),
    row(&["sharing_rp"], Needless(SHARING)),
    row(&["sharing_users_allow"], Needless(SHARING)),
    row(&["sharing_users_deny"], Needless(SHARING)),
    row(&["sharing_groups_allow"], Needless(SHARING)),
    row(&["sharing_groups_deny"], Needless(SHARING)),
    row(&["allow_root"], Unless("0", Missing, "data is never handled as root: map these identities to other accounts")),
    row(&["allow_disabled_login"], Flag("accounts.allow_disabled")),
    row(
        &["pw_file", "password_file"],
        Gone(
            Missing,
            "passwords are kept as Argon2 hashes in a file of ours: users, made with `whimbrel dtn --hash-password`",
        ),
    ),
    row(&["connections_max"], Number("max_connections")),
    row(&["connections_disabled"], Unless("0", Open, "do not start the server: one that runs takes connections")),
    row(&["offline_msg"], Needless("a server that is not to be used is not started")),
    row(
        &["disable_command_list"],
        Gone(Open, "single commands cannot be switched off; read_only refuses all that change something"),
    ),
    row(
        &["cas", "authz_callouts"],
        Gone(Differs, "no library decides about logins: the grid-mapfile does, and mapping documents or programs can"),
    ),
    row(&["use_home_dirs"], Unless("1", Differs, HOMES)),
    row(&["home_dir"], Gone(Differs, HOMES)),
    row(&["restrict_paths"], Own(Special::Paths)),
    row(
        &["rp_follow_symlinks"],
        Unless(
            "0",
            Differs,
            "rules hold for the place that a link leads to: what is denied there is denied by the link, too",
        ),
    ),
    row(&["acl"], Gone(Open, MODULES)),
    row(&["log_level"], Gone(Note, LOGS)),
    row(&["log_module"], Gone(Note, LOGS)),
    row(&["log_single", "logfile"], Gone(Note, LOGS)),
    row(&["log_unique", "logdir"], Gone(Note, LOGS)),
    row(&["log_transfer"], Text("transfer_log")),
    row(&["log_filemode"], Gone(Note, LOGS)),
    row(&["disable_usage_stats"], Needless("nobody is told of your transfers")),
    row(&["usage_stats_target"], Needless("nobody is told of your transfers")),
    row(&["usage_stats_id"], Needless("nobody is told of your transfers")),
    row(&["remote_nodes"], Gone(Missing, IPC)),
    row(&["hybrid"], Needless(IPC)),
    row(&["data_node"], Unless("0", Missing, IPC)),
    row(&["stripe_blocksize"], Needless(STRIPES)),
    row(&["stripe_count"], Needless(STRIPES)),
    row(&["brain"], Needless(STRIPES)),
    row(&["stripe_layout"], Needless(STRIPES)),
    row(&["stripe_blocksize_locked"], Needless(STRIPES)),
    row(&["stripe_layout_locked"], Needless(STRIPES)),
    row(&["stripe_mode"], Needless(STRIPES)),
    row(&["blocksize"], Needless("blocks have the size that is fastest; buffer_mib bounds all of them together")),
    row(&["sync_writes"], Flag("sync_writes")),
    row(&["direct", "direct_io"], Flag("direct_io")),
    row(&["perms"], Gone(Missing, "new files have the mode that the client tells, or 0644 less the umask")),
    row(&["file_timeout"], Gone(Differs, "stall_timeout ends transfers without progress, whatever holds them up")),
    row(&["port"], Own(Special::Port)),
    row(&["control_interface"], Own(Special::ControlInterface)),
    row(&["data_interface"], Own(Special::DataInterface)),
    row(&["ipc_interface"], Needless(IPC)),
    row(&["hostname"], Own(Special::Hostname)),
    row(&["ipc_port"], Gone(Missing, IPC)),
    row(&["control_preauth_timeout"], Number("login_timeout")),
    row(&["control_idle_timeout"], Number("idle_timeout")),
    row(&["ipc_idle_timeout"], Needless(IPC)),
    row(&["ipc_connect_timeout"], Needless(IPC)),
    row(&["always_send_markers"], Needless(MARKERS)),
    row(&["allow_udt"], Unless("0", Missing, "there is no UDT; our pairs choose the congestion control of TCP")),
    row(&["port_range"], Own(Special::PortRange)),
    row(&["epsv_ip"], Unless("0", Missing, "answers to EPSV have a port and no address (RFC 2428)")),
    row(&["epsv_match"], Needless("EPSV always answers in the family of the control connection")),
    row(&["banner"], Text("banner")),
    row(&["banner_file"], Gone(Missing, "put the text itself into banner")),
    row(&["banner_terse"], Unless("0", Differs, "the greeting names the host and the version")),
    row(&["banner_append"], Needless("the banner stands in front of the usual greeting")),
    row(&["version_tag"], Gone(Note, MESSAGES)),
    row(&["login_msg"], Gone(Missing, MESSAGES)),
    row(&["login_msg_file"], Gone(Missing, MESSAGES)),
    row(&["load_dsi_module", "dsi"], Unless("file", Missing, MODULES)),
    row(&["allowed_modules"], Gone(Missing, MODULES)),
    row(&["dc_whitelist"], Needless(DRIVERS)),
    row(&["fs_whitelist"], Gone(Missing, DRIVERS)),
    row(&["popen_whitelist"], Gone(Missing, "clients cannot start programs")),
    row(&["xnetmgr", "netmgr"], Gone(Missing, DRIVERS)),
    row(&["dc_default"], Gone(Missing, DRIVERS)),
    row(&["fs_default"], Gone(Missing, DRIVERS)),
    row(&["c", "configfile"], Needless("give every file to --import")),
    row(&["config_dir", "C"], Gone(Differs, "give this directory to --import, in front of this file")),
    row(&["config_base_path"], Gone(Differs, "write paths in full")),
    row(&["debug"], Needless(LOGS)),
    row(&["pidfile"], Gone(Note, "a service manager knows the process")),
    row(&["globus_location", "G"], Needless("nothing of Globus is loaded")),
    row(&["ignore_bad_threads"], Needless(THREADS)),
    row(&["bad_signal_exit", "exit"], Needless(LOGS)),
    row(&["slow_dirlist"], Needless("listings take no time of others")),
    row(&["checksum_throttle"], Needless("checksums are computed by threads of their own")),
    row(&["extension"], Gone(Missing, MODULES)),
];

/// The row of an option, by its name in files or, with `-` in it or not, on the command line.
pub fn find(name: &str) -> Option<&'static Row> {
    let name = name.replace('-', "_");
    OPTIONS.iter().find(|row| row.names.contains(&name.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_stands_once() {
        let names: Vec<_> = OPTIONS.iter().flat_map(|row| row.names).collect();
        let mut once = names.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), names.len());
        assert!(find("authz-callouts").is_some() && find("nothing").is_none());
    }
}
