//! HELP and SITE HELP (RFC 959 §4.1.3).

use super::answer::Answer;
use super::config::ServerConfig;

/// Verbs with their syntax.
const COMMANDS: [(&str, &str); 66] = [
    ("ABOR", "ABOR"),
    ("ABUF", "ABUF"),
    ("ACCT", "ACCT <sp> account"),
    ("ALLO", "ALLO <sp> size [<sp> R <sp> size]"),
    ("APPE", "APPE <sp> pathname"),
    ("AUTH", "AUTH <sp> mechanism"),
    ("CDUP", "CDUP"),
    ("CKSM", "CKSM <sp> algorithm <sp> offset <sp> length <sp> pathname"),
    ("CLNT", "CLNT <sp> text"),
    ("CWD", "CWD <sp> pathname"),
    ("DCAU", "DCAU <sp> N"),
    ("DELE", "DELE <sp> pathname"),
    ("EPRT", "EPRT <sp> |protocol|address|port|"),
    ("EPSV", "EPSV [<sp> 1|2|ALL]"),
    (
        "ERET",
        "ERET <sp> P <sp> offset <sp> length <sp> pathname | ERET <sp> M|D <sp> bytes,milliseconds <sp> pathname | ERET <sp> PACK <sp> size,modify,mode,pathname ...",
    ),
    (
        "ESTO",
        "ESTO <sp> A <sp> offset <sp> pathname | ESTO <sp> C <sp> session,offset <sp> pathname | ESTO <sp> PACK <sp> size,modify,mode,pathname ...",
    ),
    ("FEAT", "FEAT"),
    ("GET", "GET <sp> path=pathname;[pasv;|port=h1,h2,h3,h4,p1,p2;]"),
    ("HELP", "HELP [<sp> command]"),
    ("LANG", "LANG [<sp> EN]"),
    ("LIST", "LIST [<sp> pathname]"),
    ("MDTM", "MDTM <sp> pathname"),
    ("MFMT", "MFMT <sp> YYYYMMDDHHMMSS <sp> pathname"),
    ("MKD", "MKD <sp> pathname"),
    ("MLSC", "MLSC [<sp> pathname]"),
    ("MLSD", "MLSD [<sp> pathname]"),
    ("MLSR", "MLSR [<sp> pathname]"),
    ("MLST", "MLST [<sp> pathname]"),
    ("MODE", "MODE <sp> S|E"),
    ("NLST", "NLST [<sp> pathname]"),
    ("NOOP", "NOOP"),
    ("OPTS", "OPTS <sp> RETR|STOR|PASV|EPSV|SPAS|MLST|MLSR|CKSM|UTF8 <sp> options"),
    ("PASS", "PASS <sp> password"),
    ("PASV", "PASV"),
    ("PBSZ", "PBSZ <sp> size"),
    ("PORT", "PORT <sp> h1,h2,h3,h4,p1,p2"),
    ("PROT", "PROT <sp> C"),
    ("PUT", "PUT <sp> path=pathname;[pasv;|port=h1,h2,h3,h4,p1,p2;]"),
    ("PWD", "PWD"),
    ("QUIT", "QUIT"),
    ("REIN", "REIN"),
    ("REST", "REST <sp> offset | REST <sp> start-end[,start-end...]"),
    ("RETR", "RETR <sp> pathname"),
    ("RMD", "RMD <sp> pathname"),
    ("RNFR", "RNFR <sp> pathname"),
    ("RNTO", "RNTO <sp> pathname"),
    ("SBUF", "SBUF <sp> bytes"),
    ("SCKS", "SCKS <sp> algorithm <sp> checksum"),
    ("SITE", "SITE <sp> command; see HELP SITE"),
    ("SIZE", "SIZE <sp> pathname"),
    ("SPAS", "SPAS [<sp> 1|2]"),
    ("SPOR", "SPOR <sp> address [<sp> address...]"),
    ("STAT", "STAT [<sp> pathname]"),
    ("STOR", "STOR <sp> pathname"),
    ("STOU", "STOU [<sp> pathname]"),
    ("STRU", "STRU <sp> F"),
    ("SYST", "SYST"),
    ("TREV", "TREV <sp> PERF|RESTART <sp> seconds"),
    ("TYPE", "TYPE <sp> A|I"),
    ("USER", "USER <sp> name"),
    ("WHOAMI", "WHOAMI"),
    ("XCUP", "XCUP"),
    ("XCWD", "XCWD <sp> pathname"),
    ("XMKD", "XMKD <sp> pathname"),
    ("XPWD", "XPWD"),
    ("XRMD", "XRMD <sp> pathname"),
];

/// What the verbs of RFC 2228 mean where something can protect a connection, in place of the lines above.
const SECURITY: [(&str, &str); 5] = [
    ("ADAT", "ADAT <sp> token in base64"),
    ("CCC", "CCC"),
    ("DCAU", "DCAU <sp> N|A|S [<sp> subject]"),
    ("DCSC", "DCSC <sp> P <sp> credential in base64 | DCSC <sp> D"),
    ("PROT", "PROT <sp> C|S|P"),
];

/// SITE words with their syntax. Clients search the whole text for these words, so each stands here exactly if it
/// works.
const SITE: [(&str, &str); 35] = [
    ("BUFSIZE", "SITE BUFSIZE <sp> bytes"),
    ("CHGRP", "SITE CHGRP <sp> group <sp> pathname"),
    ("CHMOD", "SITE CHMOD <sp> mode <sp> pathname"),
    ("READBACK", "SITE READBACK <sp> DISK|MEMORY"),
    ("CHUNK", "SITE CHUNK <sp> OPEN|KEEP|HOLES|COMMIT|DROP <sp> ... <sp> pathname"),
    ("CLIENTINFO", "SITE CLIENTINFO <sp> key=value;..."),
    ("CONGESTION", "SITE CONGESTION <sp> name | SITE CONGESTION <sp> -"),
    ("DCNONCE", "SITE DCNONCE <sp> 32 hexadecimal digits"),
    ("DCRELAY", "SITE DCRELAY <sp> CLIENT|SERVER"),
    ("DURABLE", "SITE DURABLE <sp> 1|0"),
    ("EXTENTS", "SITE EXTENTS <sp> bytes <sp> pathname"),
    ("HELP", "SITE HELP [<sp> command]"),
    ("LEAVES", "SITE LEAVES <sp> bytes <sp> algorithm [<sp> HOLES] [<sp> VOUCHED] | SITE LEAVES <sp> 0"),
    ("POLICY", "SITE POLICY"),
    ("PROBE", "SITE PROBE <sp> HOST|READ|WRITE [<sp> bytes,milliseconds] <sp> pathname"),
    ("RBUFSIZ", "SITE RBUFSIZ <sp> bytes"),
    ("RBUFSZ", "SITE RBUFSZ <sp> bytes"),
    ("RDEL", "SITE RDEL <sp> pathname"),
    ("RETRBUFSIZE", "SITE RETRBUFSIZE <sp> bytes"),
    ("SBUFSIZ", "SITE SBUFSIZ <sp> bytes"),
    ("SBUFSZ", "SITE SBUFSZ <sp> bytes"),
    ("SETDISKSTACK", "SITE SETDISKSTACK <sp> default"),
    ("SETNETSTACK", "SITE SETNETSTACK <sp> default"),
    ("SPENT", "SITE SPENT <sp> 1|0"),
    ("STORATTR", "SITE STORATTR <sp> [modify=YYYYMMDDHHMMSS;][UNIX.mode=octal;][checksum.algorithm=digest;]"),
    ("STORBUFSIZE", "SITE STORBUFSIZE <sp> bytes"),
    ("SYMLINK", "SITE SYMLINK <sp> target <sp> link"),
    ("SYMLINKFROM", "SITE SYMLINKFROM <sp> target"),
    ("SYMLINKTO", "SITE SYMLINKTO <sp> link"),
    ("SYNC", "SITE SYNC <sp> pathname"),
    ("TASKID", "SITE TASKID <sp> id"),
    ("TRNC", "SITE TRNC <sp> length <sp> pathname"),
    ("UTIME", "SITE UTIME <sp> YYYYMMDDHHMMSS <sp> pathname"),
    ("VERSION", "SITE VERSION"),
    ("WHOAMI", "SITE WHOAMI"),
];

/// HELP: all verbs, or the syntax of one; `HELP SITE` gives that of every SITE word.
pub(super) fn help(config: &ServerConfig, topic: Option<&[u8]>) -> Answer {
    let commands = commands(config);
    let Some(topic) = topic else { return recognized("The following commands are recognized:", &commands) };
    let topic = topic.to_ascii_uppercase();
    if topic == b"SITE" {
        let answer = Answer::listing(214, "Help for SITE:", "End.");
        return SITE.iter().fold(answer, |answer, (_, syntax)| answer.with(syntax));
    }
    syntax_of(&commands, &topic)
}

/// The verbs of this server, in their order.
fn commands(config: &ServerConfig) -> Vec<(&'static str, &'static str)> {
    if !config.mechanisms.any() {
        return COMMANDS.to_vec();
    }
    let replaced = |verb: &str| SECURITY.iter().any(|(other, _)| *other == verb);
    let mut commands: Vec<_> = COMMANDS.into_iter().filter(|(verb, _)| !replaced(verb)).chain(SECURITY).collect();
    commands.sort_unstable();
    commands
}

/// SITE HELP.
pub(super) fn site_help(topic: Option<&[u8]>) -> Answer {
    match topic {
        None => recognized("The following SITE commands are recognized:", &SITE),
        Some(topic) => syntax_of(&SITE, &topic.to_ascii_uppercase()),
    }
}

fn syntax_of(table: &[(&str, &str)], topic: &[u8]) -> Answer {
    match table.iter().find(|(verb, _)| verb.as_bytes() == topic) {
        Some((verb, syntax)) => Answer::listing(214, format!("Help for {verb}:"), "End.").with(syntax),
        None => Answer::line(502, [b"Unknown command '", topic, b"'."].concat()),
    }
}

/// Eight to a line in columns, as the reference server prints them.
fn recognized(first: &str, table: &[(&str, &str)]) -> Answer {
    table.chunks(8).fold(Answer::listing(214, first, "End"), |answer, chunk| {
        let line: String = chunk.iter().map(|(verb, _)| format!("   {verb:<4} ")).collect();
        answer.with(line.trim_end())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::BytesMut;

    fn text(answer: &Answer) -> String {
        let mut out = BytesMut::new();
        answer.write(&mut out);
        String::from_utf8_lossy(&out).into_owned()
    }

    #[test]
    fn site_help_holds_the_words_clients_search_for() {
        let text = text(&site_help(None));
        for word in ["RETRBUFSIZE", "STORBUFSIZE", "CHMOD", "CHGRP", "UTIME", "SYMLINK", "CLIENTINFO"] {
            assert!(text.contains(word), "{word}");
        }
        assert!(!text.contains("AUTHZ_ASSERT"));
    }

    #[test]
    fn help_of_one_verb_gives_its_syntax() {
        assert_eq!(
            text(&help(&ServerConfig::default(), Some(b"size"))),
            "214-Help for SIZE:\r\n SIZE <sp> pathname\r\n214 End.\r\n"
        );
        assert_eq!(text(&help(&ServerConfig::default(), Some(b"NOPE"))), "502 Unknown command 'NOPE'.\r\n");
        assert!(text(&help(&ServerConfig::default(), Some(b"site"))).contains("\r\n SITE CHMOD <sp>"));
    }

    #[test]
    fn help_tells_of_protection_only_where_there_is_any() {
        let mut config = ServerConfig::default();
        assert_eq!(text(&help(&config, Some(b"dcau"))), "214-Help for DCAU:\r\n DCAU <sp> N\r\n214 End.\r\n");
        assert!(!text(&help(&config, None)).contains("ADAT"));
        config.mechanisms.tls = true;
        assert!(text(&help(&config, Some(b"DCAU"))).contains("N|A|S"));
        let all = text(&help(&config, None));
        assert!(all.contains("ADAT") && all.contains("DCSC") && all.matches("PROT").count() == 1, "{all}");
    }
}
