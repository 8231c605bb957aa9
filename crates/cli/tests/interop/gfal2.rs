//! gfal2 (its GridFTP and file plugins, through the Python bindings) with our server.

use std::time::Duration;

use whimbrel_testkit::peers;

use crate::case::{Case, Program};
use crate::protection::Site;
use crate::support::{Context, Kind, Place, Server, Size, assert_same, file_url};

const START: &str = "
import gfal2, sys
context = gfal2.creat_context()
arguments = sys.argv[1:]
def fails(code, call, *arguments):
    try:
        call(*arguments)
    except gfal2.GError as error:
        assert error.code == code, (error.code, str(error))
    else:
        raise AssertionError('it should have failed')
def copy(source, destination, streams=1, checksum=False):
    parameters = context.transfer_parameters()
    parameters.nbstreams = streams
    parameters.overwrite = True
    parameters.timeout = 60
    if checksum:
        parameters.set_checksum(gfal2.checksum_mode.both, 'ADLER32', '')
    context.filecopy(parameters, source, destination)
";

/// How every script ends: without the handlers of exit(3), in which OpenSSL gives its tables back while threads of Globus may still close
/// connections and free what is in them (`free(): invalid pointer`), some time after the last call has succeeded.
const END: &str = "import os
sys.stdout.flush()
os._exit(0)
";

/// The cases of this module.
pub fn cases(cases: &mut Vec<Case>) {
    for (streams, checksum) in [(1, "False"), (4, "False"), (1, "True")] {
        for size in Size::ALL {
            if size != Size::Large || (streams, checksum) == (1, "False") {
                file_copies(cases, size, streams, checksum);
            }
        }
    }
    let mut add = |option, proves, run: fn(&Context)| {
        cases.push(Case::new(Program::Gfal2, "files on ours", option, run).proves(proves));
    };
    add("stat", "size, kind and mode", |context| {
        let server = Server::start(Kind::Ours);
        let script = "import stat, os
found, real = context.stat(arguments[0]), os.stat(arguments[2])
assert (found.st_size, found.st_mode, int(found.st_mtime)) == (real.st_size, real.st_mode, int(real.st_mtime)), found
assert stat.S_ISDIR(context.stat(arguments[1]).st_mode)
fails(2, context.stat, arguments[1] + '/none')";
        let file = context.file(Size::Ten);
        run(script, &[server.url(&file), server.url(context.tree()), file.to_string_lossy().into_owned()]);
    });
    add("listdir", "all names", |context| {
        let server = Server::start(Kind::Ours);
        let script = "names = set(context.listdir(arguments[0])) - {'.', '..'}
assert names == {'deep', 'other', 'zero', 'one', 'two words'}, names
assert len(set(context.listdir(arguments[0] + '/deep')) - {'.', '..'}) == 41
fails(2, context.listdir, arguments[0] + '/none')";
        run(script, &[server.url(context.tree())]);
    });
    add("opendir and readpp", "all names with sizes", |context| {
        let server = Server::start(Kind::Ours);
        let script = "directory, found = context.opendir(arguments[0]), {}
while True:
    entry, facts = directory.readpp()
    if entry is None:
        break
    found[entry.d_name] = facts.st_size
assert found['one'] == 1 and found['zero'] == 0 and found['two words'] == 19, found";
        run(script, &[server.url(context.tree())]);
    });
    add("checksum", "the same checksums as Python's", |context| {
        let server = Server::start(Kind::Ours);
        let script = "import hashlib, zlib
data = open(arguments[1], 'rb').read()
assert context.checksum(arguments[0], 'MD5') == hashlib.md5(data).hexdigest()
assert context.checksum(arguments[0], 'ADLER32') == '%08x' % zlib.adler32(data)
assert context.checksum(arguments[0], 'MD5', 5, 1000) == hashlib.md5(data[5:1005]).hexdigest()";
        let file = context.file(Size::Ten);
        run(script, &[server.url(&file), file.to_string_lossy().into_owned()]);
    });
    add("mkdir, mkdir_rec, rename, chmod, unlink, rmdir", "the files are as asked", |context| {
        let (server, place) = (Server::start(Kind::Ours), Place::new());
        let script = "import os
url, path, file = arguments
context.mkdir(url + '/made', 0o755)
context.mkdir_rec(url + '/a/b/c', 0o755)
assert os.path.isdir(path + '/made') and os.path.isdir(path + '/a/b/c')
copy('file://' + file, url + '/made/one')
context.rename(url + '/made/one', url + '/a/b/c/moved')
assert os.path.exists(path + '/a/b/c/moved') and not os.path.exists(path + '/made/one')
context.chmod(url + '/a/b/c/moved', 0o600)
assert os.stat(path + '/a/b/c/moved').st_mode & 0o777 == 0o600
context.unlink(url + '/a/b/c/moved')
context.rmdir(url + '/a/b/c')
assert not os.path.exists(path + '/a/b/c')
fails(2, context.unlink, url + '/none')";
        let root = place.directory("root");
        let words = [server.url(&root), root.to_string_lossy().into_owned()];
        run(script, &[words[0].clone(), words[1].clone(), context.file(Size::One).to_string_lossy().into_owned()]);
    });
    add("open, read, pread, write", "same bytes", |context| {
        let (server, place) = (Server::start(Kind::Ours), Place::new());
        let script = "data = open(arguments[2], 'rb').read()
source = context.open(arguments[0], 'r')
assert source.read_bytes(1000) == data[:1000]
assert source.pread_bytes(5000000, 1000) == data[5000000:5001000]
del source";
        run(
            script,
            &[
                server.url(context.file(Size::Ten)),
                server.url(place.path("new")),
                context.file(Size::Ten).to_string_lossy().into_owned(),
            ],
        );
    });
}

fn file_copies(cases: &mut Vec<Case>, size: Size, streams: u32, checksum: &'static str) {
    use Kind::{Ours, Theirs};
    let ends = [
        (Some(Ours), None, "ours to local"),
        (None, Some(Ours), "local to ours"),
        (Some(Ours), Some(Theirs), "ours to theirs"),
        (Some(Theirs), Some(Ours), "theirs to ours"),
        (Some(Ours), Some(Ours), "ours to ours"),
    ];
    for (source, destination, direction) in ends {
        let run = move |context: &Context| {
            let (source, destination) = (source.map(Server::start), destination.map(Server::start));
            let place = Place::new();
            let (from, to) = (context.file(size), place.path("copy"));
            let url = |server: &Option<Server>, path| server.as_ref().map_or_else(|| file_url(path), |at| at.url(path));
            let script = format!("copy(arguments[0], arguments[1], {streams}, {checksum})");
            run(&script, &[url(&source, &from), url(&destination, &to)]);
            assert_same(&from, &to);
        };
        let verified = if checksum == "True" { ", checksum" } else { "" };
        let option = format!("filecopy, {streams} streams{verified}, {}", size.name());
        let large = size == Size::Large;
        cases.push(Case::new(Program::Gfal2, direction, option, run).nightly(large).large(large));
    }
}

fn run(script: &str, arguments: &[String]) {
    let tool = peers::gfal2(&format!("{START}{script}\n{END}")).expect("its presence was checked");
    Site::now().known(tool).args(arguments).limit(Duration::from_secs(120)).run_ok();
}
