//! Python's ftplib with our server: the plain commands of RFC 959, 2428 and 3659, one by one.

use std::fs;
use std::time::Duration;

use whimbrel_testkit::peers;

use crate::case::{Case, Program};
use crate::protection::Site;
use crate::secure::Secure;
use crate::support::{Context, Kind, Place, Server, Size, assert_same};

/// What every script begins with; paths are those of the case's own directory unless they are absolute.
const START: &str = "
import ftplib, io, sys, hashlib
host, port, root, ten = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
BEGINNING
ftp.set_pasv(PASSIVE)
ftp.cwd(root)
def fetch(name, rest=None):
    blocks = []
    ftp.retrbinary('RETR ' + name, blocks.append, rest=rest)
    return b''.join(blocks)
def fails(code, call, *arguments):
    try:
        call(*arguments)
    except ftplib.Error as error:
        assert str(error).startswith(code), error
    else:
        raise AssertionError('it should have failed')
data = open(ten, 'rb').read()
";

/// How a session begins in clear.
const CLEAR: &str = "ftp = ftplib.FTP(timeout=30)
ftp.connect(host, port)
ftp.login()";

/// How it begins over TLS, with USER, PASSWORD and the AUTHORITY. FTP_TLS by itself does not continue the session of its control connection
/// on data connections.
const SECURE: &str = "import ssl
class Continuing(ftplib.FTP_TLS):
    def ntransfercmd(self, command, rest=None):
        connection, size = ftplib.FTP.ntransfercmd(self, command, rest)
        if self._prot_p:
            connection = self.context.wrap_socket(connection, server_hostname=self.host, session=self.sock.session)
        return connection, size
ftp = Continuing(timeout=30, context=ssl.create_default_context(cafile='AUTHORITY'))
ftp.connect(host, port)
ftp.login('USER', 'PASSWORD')
ftp.prot_p()";

/// Name, what is proven, script. A script may leave `root/sent`, which is then compared with the 10 MB file.
const SCRIPTS: [(&str, &str, &str); 13] = [
    ("RETR", "same bytes", "assert fetch(ten) == data\nassert fetch('one') == b'1'\nassert fetch('zero') == b''"),
    ("STOR", "same bytes", "ftp.storbinary('STOR sent', io.BytesIO(data))\nassert fetch('sent') == data"),
    (
        "RETR and STOR of lines (TYPE A)",
        "same lines",
        "ftp.storlines('STOR text', io.BytesIO(b'one\\r\\ntwo\\r\\n'))\nlines = []\n\
         ftp.retrlines('RETR text', lines.append)\nassert lines == ['one', 'two'], lines\n\
         assert open(root + '/text', 'rb').read() == b'one\\ntwo\\n'",
    ),
    (
        "REST before RETR and STOR",
        "same bytes at the same place",
        "assert fetch(ten, rest=4000000) == data[4000000:]\nftp.storbinary('STOR sent', io.BytesIO(data[:4000000]))\n\
         ftp.storbinary('STOR sent', io.BytesIO(data[4000000:]), rest=4000000)",
    ),
    (
        "APPE",
        "same bytes",
        "ftp.storbinary('STOR sent', io.BytesIO(data[:3]))\nftp.storbinary('APPE sent', io.BytesIO(data[3:]))",
    ),
    (
        "LIST and NLST",
        "all names",
        "lines = []\nftp.dir(lines.append)\nnames = [line.split(None, 8)[8] for line in lines if not line.startswith('total')]\n\
         assert {'one', 'zero', 'two words', 'tree'} <= set(names), lines\n\
         assert {'one', 'zero', 'two words', 'tree'} <= set(name.rsplit('/')[-1] for name in ftp.nlst()), ftp.nlst()",
    ),
    (
        "MLSD",
        "all names and facts",
        "entries = dict(ftp.mlsd(facts=['type', 'size', 'modify', 'perm']))\n\
         assert entries['one']['type'] == 'file' and entries['one']['size'] == '1', entries\n\
         assert entries['tree']['type'] == 'dir' and len(entries['one']['modify']) >= 14, entries\n\
         assert set(name for name, facts in ftp.mlsd('tree') if facts['type'] == 'file') == {'a', 'b'}",
    ),
    (
        "ABOR in mid-transfer",
        "the session goes on",
        "ftp.voidcmd('TYPE I')\nconnection = ftp.transfercmd('RETR ' + ten)\nconnection.recv(1000)\nftp.abort()\n\
         connection.close()\n\
         # An aborted transfer has one reply, the ABOR another (RFC 959 section 4.1.3); ftplib reads one.\n\
         ftp.sock.settimeout(10)\nfollowing = ftp.getmultiline()\nassert following[:1] == '2', following\n\
         assert ftp.pwd() == root\nassert fetch('one') == b'1'",
    ),
    (
        "RNFR, RNTO, DELE",
        "the files are as asked",
        "ftp.rename('one', 'eins')\nassert fetch('eins') == b'1'\nfails('550', ftp.size, 'one')\nftp.delete('eins')\n\
         fails('550', ftp.delete, 'eins')\nfails('5', ftp.rename, 'one', 'two')",
    ),
    (
        "MKD, CWD, PWD, CDUP, RMD",
        "the directories are as asked",
        "assert ftp.mkd('made') == root + '/made' or ftp.mkd('other')\nftp.cwd('made')\nassert ftp.pwd() == root + '/made'\n\
         ftp.cwd('..')\nassert ftp.pwd() == root\nftp.rmd('made')\nfails('550', ftp.cwd, 'made')\nfails('5', ftp.rmd, 'tree')",
    ),
    (
        "SIZE, MDTM, STAT, SYST, NOOP, HELP",
        "the facts are right",
        "ftp.voidcmd('TYPE I')\nassert ftp.size(ten) == len(data)\nassert ftp.sendcmd('MDTM one') == '213 20010909014640'\n\
         assert ftp.sendcmd('STAT').startswith('21')\nassert 'one' in ftp.sendcmd('STAT one')\n\
         assert ftp.sendcmd('SYST').startswith('215 UNIX')\nftp.voidcmd('NOOP')\nassert ftp.sendcmd('HELP').startswith('214')",
    ),
    (
        "commands that do not exist, and files that do not",
        "the right refusals, and the session goes on",
        "fails('50', ftp.sendcmd, 'XYZZ')\nfails('50', ftp.sendcmd, 'SITE NONSENSE')\nfails('5', fetch, 'none')\n\
         fails('5', ftp.nlst, 'none')\nfails('5', ftp.storbinary, 'STOR none/x', io.BytesIO(b'x'))\nassert fetch('one') == b'1'",
    ),
    (
        "many transfers on one session",
        "same bytes",
        "for number in range(200):\n    ftp.storbinary(f'STOR n{number}', io.BytesIO(b'%d' % number))\n\
         for number in range(200):\n    assert fetch(f'n{number}') == b'%d' % number",
    ),
];

/// The cases of this module.
pub fn cases(cases: &mut Vec<Case>) {
    let ways = [("PASV", "127.0.0.1:0", true), ("PORT", "127.0.0.1:0", false)];
    let ways = ways.into_iter().chain([("EPSV, IPv6", "[::1]:0", true), ("EPRT, IPv6", "[::1]:0", false)]);
    for (way, listen, passive) in ways {
        for (name, proves, script) in SCRIPTS {
            let run = move |context: &Context| run(context, listen, passive, script);
            cases.push(Case::new(Program::Ftplib, "both ways with ours", format!("{name}; {way}"), run).proves(proves));
        }
    }
}

fn run(context: &Context, listen: &str, passive: bool, script: &str) {
    let place = Place::new();
    let server = if listen.starts_with('[') { Server::ours_at(listen, &[]) } else { Server::start(Kind::Ours) };
    let root = place.directory("root");
    let time = std::time::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    for (name, size) in [("one", Size::One), ("two words", Size::One), ("zero", Size::Zero)] {
        place.copy_of(&context.file(size), format!("root/{name}"));
    }
    fs::write(root.join("one"), "1").unwrap();
    fs::File::options().write(true).open(root.join("one")).unwrap().set_modified(time).unwrap();
    place.directory("root/tree");
    fs::write(root.join("tree/a"), "a").unwrap();
    fs::write(root.join("tree/b"), "b").unwrap();
    let passive = if passive { "True" } else { "False" };
    let (host, port) = (server.address().ip().to_string(), server.address().port().to_string());
    let end = if script.contains("ABOR") { "" } else { "\nftp.quit()" };
    let start = START.replace("BEGINNING", &beginning()).replace("PASSIVE", passive);
    let tool = peers::python(&format!("{start}{script}{end}"));
    let tool = tool.expect("its presence was checked").args([host, port]);
    tool.arg(&root).arg(context.file(Size::Ten)).run_ok();
    if root.join("sent").exists() {
        assert_same(&context.file(Size::Ten), &root.join("sent"));
    }
}

fn beginning() -> String {
    let Site::Tls(secure) = Site::now() else { return CLEAR.to_owned() };
    let words = [("USER", Secure::USER), ("PASSWORD", Secure::PASSWORD)];
    let script = words.iter().fold(SECURE.to_owned(), |script, (word, value)| script.replace(word, value));
    script.replace("AUTHORITY", &secure.authority.display().to_string())
}
