//! Kerberos through GSSAPI (RFC 2744), by the library of MIT Kerberos, which is looked for when it is needed.
//!
//! Programs that know no Kerberos do not carry it: without the library [`Gssapi::load`] says so, and everything else works.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fmt;
use std::io;
use std::ptr;
use std::sync::OnceLock;

use crate::library::Library;

/// The library, as Debian, Red Hat and SUSE call it.
const LIBRARY: &CStr = c"libgssapi_krb5.so.2";

/// Most rounds of texts that describe one status: the library has one or two.
const MOST_TEXTS: usize = 8;

/// GSS_C_MUTUAL_FLAG: the acceptor shows that it has its key, and adds to the keys of this one login.
pub const MUTUAL: u32 = 2;
/// GSS_C_REPLAY_FLAG: repeated messages are told.
pub const REPLAY: u32 = 4;
/// GSS_C_SEQUENCE_FLAG: messages that are left out or come too late are told.
pub const SEQUENCE: u32 = 8;
/// GSS_C_CONF_FLAG and GSS_C_INTEG_FLAG (all of RFC 2744 §5.19).
const SEALED: u32 = 16 | 32;

/// What both sides of a handshake have to agree to.
pub const WANTED: u32 = MUTUAL | REPLAY | SEQUENCE | SEALED;

/// GSS_S_CONTINUE_NEEDED.
const CONTINUE: u32 = 1;

/// Longest token that is taken, bytes: tickets with authorisation data have tens of thousands.
pub const MOST_TOKEN: usize = 256 << 10;

/// gss_buffer_desc.
#[repr(C)]
struct Buffer {
    length: usize,
    value: *mut c_void,
}

/// gss_OID_desc.
#[repr(C)]
struct Oid {
    length: u32,
    elements: *const c_void,
}

/// gss_OID_set_desc.
#[repr(C)]
struct OidSet {
    count: usize,
    elements: *const Oid,
}

/// gss_key_value_element_desc.
#[repr(C)]
struct Element {
    key: *const c_char,
    value: *const c_char,
}

/// gss_key_value_set_desc.
#[repr(C)]
struct Elements {
    count: u32,
    elements: *const Element,
}

// SAFETY: the descriptions of identifiers point to constant bytes and are never written.
unsafe impl Sync for Oid {}

/// 1.2.840.113554.1.2.2, Kerberos 5 (RFC 4121 §4).
static KERBEROS: Oid = Oid { length: 9, elements: b"\x2a\x86\x48\x86\xf7\x12\x01\x02\x02".as_ptr().cast() };

/// GSS_C_NT_HOSTBASED_SERVICE, 1.2.840.113554.1.2.1.4.
static SERVICE: Oid = Oid { length: 10, elements: b"\x2a\x86\x48\x86\xf7\x12\x01\x02\x01\x04".as_ptr().cast() };

type Handle = *mut c_void;

type ImportName = unsafe extern "C" fn(*mut u32, *mut Buffer, *const Oid, *mut Handle) -> u32;
type ReleaseHandle = unsafe extern "C" fn(*mut u32, *mut Handle) -> u32;
type AcquireFrom = unsafe extern "C" fn(
    *mut u32,
    Handle,
    u32,
    *const OidSet,
    c_int,
    *const Elements,
    *mut Handle,
    *mut Handle,
    *mut u32,
) -> u32;
type Initiate = unsafe extern "C" fn(
    *mut u32,
    Handle,
    *mut Handle,
    Handle,
    *const Oid,
    u32,
    u32,
    *mut c_void,
    *mut Buffer,
    *mut Handle,
    *mut Buffer,
    *mut u32,
    *mut u32,
) -> u32;
type Accept = unsafe extern "C" fn(
    *mut u32,
    *mut Handle,
    Handle,
    *mut Buffer,
    *mut c_void,
    *mut Handle,
    *mut Handle,
    *mut Buffer,
    *mut u32,
    *mut u32,
    *mut Handle,
) -> u32;
type DeleteContext = unsafe extern "C" fn(*mut u32, *mut Handle, *mut Buffer) -> u32;
type Wrap = unsafe extern "C" fn(*mut u32, Handle, c_int, u32, *mut Buffer, *mut c_int, *mut Buffer) -> u32;
type Unwrap = unsafe extern "C" fn(*mut u32, Handle, *mut Buffer, *mut Buffer, *mut c_int, *mut u32) -> u32;
type ReleaseBuffer = unsafe extern "C" fn(*mut u32, *mut Buffer) -> u32;
type DisplayName = unsafe extern "C" fn(*mut u32, Handle, *mut Buffer, *mut Handle) -> u32;
type InquireContext = unsafe extern "C" fn(
    *mut u32,
    Handle,
    *mut Handle,
    *mut Handle,
    *mut u32,
    *mut *const Oid,
    *mut u32,
    *mut c_int,
    *mut c_int,
) -> u32;
type DisplayStatus = unsafe extern "C" fn(*mut u32, u32, c_int, *const Oid, *mut u32, *mut Buffer) -> u32;

/// Functions of the library, which is never unloaded.
struct Functions {
    import_name: ImportName,
    release_name: ReleaseHandle,
    acquire_from: AcquireFrom,
    release_cred: ReleaseHandle,
    initiate: Initiate,
    accept: Accept,
    delete_context: DeleteContext,
    inquire_context: InquireContext,
    wrap: Wrap,
    unwrap: Unwrap,
    release_buffer: ReleaseBuffer,
    display_name: DisplayName,
    display_status: DisplayStatus,
}

/// The library.
#[derive(Clone, Copy)]
pub struct Gssapi(&'static Functions);

/// Why a function failed: texts of the library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GssError {
    /// The status that all mechanisms share (RFC 2744 §3.9.1).
    pub major: u32,
    /// The mechanism's own.
    pub minor: u32,
    /// For people.
    pub text: String,
}

impl fmt::Display for GssError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for GssError {}

/// What one step of a handshake led to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// For the other side; empty: nothing.
    pub token: Vec<u8>,
    /// The handshake is over here; for an acceptor with the name of the client, `ada@REALM`.
    pub done: Option<Option<String>>,
}

/// Between whom a handshake was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ends {
    /// The client's name, `ada@GRID.ORG`.
    pub client: String,
    /// The server's, `host/dtn.example.org@GRID.ORG`.
    pub server: String,
    /// Seconds until the end of the ticket.
    pub seconds: u32,
}

/// The keys of a server.
pub struct Credential {
    api: Gssapi,
    handle: Handle,
}

/// A name of a service.
struct Name {
    api: Gssapi,
    handle: Handle,
}

/// One side of a connection.
pub struct Context {
    api: Gssapi,
    handle: Handle,
}

// SAFETY: RFC 2744 has no thread affinity, and MIT's library keeps none: a handle may be used by any thread, one at a time, which `&mut` sees to;
// credentials are only read by the library, under its own lock.
unsafe impl Send for Credential {}
// SAFETY: as above.
unsafe impl Sync for Credential {}
// SAFETY: as above.
unsafe impl Send for Context {}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credential(..)")
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Context(..)")
    }
}

impl fmt::Debug for Gssapi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Gssapi")
    }
}

impl Gssapi {
    /// Loads the library, once; `NotFound` where it is not installed.
    pub fn load() -> io::Result<Self> {
        static LOADED: OnceLock<Result<Functions, String>> = OnceLock::new();
        match LOADED.get_or_init(Functions::load) {
            Ok(functions) => Ok(Self(functions)),
            Err(text) => Err(io::Error::new(io::ErrorKind::NotFound, text.clone())),
        }
    }

    /// The keys that a server shows, from a keytab such as `FILE:/etc/krb5.keytab`. What was shown before is not remembered (`rcache`): a
    /// replayed token gives nobody the keys that every line behind it needs.
    pub fn acceptor(self, keytab: &str) -> Result<Credential, GssError> {
        const ACCEPT: c_int = 2;
        let keytab = CString::new(keytab).map_err(|_| own("the name of the keytab has a NUL"))?;
        let elements = [
            Element { key: c"keytab".as_ptr(), value: keytab.as_ptr() },
            Element { key: c"rcache".as_ptr(), value: c"none:".as_ptr() },
        ];
        let store = Elements { count: 2, elements: elements.as_ptr() };
        let mechanisms = OidSet { count: 1, elements: &raw const KERBEROS };
        let (mut minor, mut handle) = (0, ptr::null_mut());
        // SAFETY: all pointers are to live objects of this frame or constants; null stands for what is not wanted (RFC 2744 §5.2).
        let major = unsafe {
            (self.0.acquire_from)(
                &mut minor,
                ptr::null_mut(),
                u32::MAX,
                &mechanisms,
                ACCEPT,
                &store,
                &mut handle,
                ptr::null_mut(),
                ptr::null_mut(),
            )
        };
        self.check(major, minor)?;
        Ok(Credential { api: self, handle })
    }

    /// A context that has not begun.
    pub fn context(self) -> Context {
        Context { api: self, handle: ptr::null_mut() }
    }

    fn service(self, service: &str) -> Result<Name, GssError> {
        let (mut minor, mut handle) = (0, ptr::null_mut());
        // SAFETY: the name is only read, and all pointers are to live objects of this frame or constants.
        let major =
            unsafe { (self.0.import_name)(&mut minor, &mut borrowed(service.as_bytes()), &SERVICE, &mut handle) };
        self.check(major, minor)?;
        Ok(Name { api: self, handle })
    }

    /// The text of a name, and the name released.
    fn text_of(self, handle: Handle) -> Result<String, GssError> {
        let name = Name { api: self, handle };
        let (mut minor, mut text) = (0, Buffer::empty());
        // SAFETY: the handle is a live name; the library fills the buffer, which `take` releases.
        let major = unsafe { (self.0.display_name)(&mut minor, name.handle, &mut text, ptr::null_mut()) };
        let text = self.take(text);
        self.check(major, minor)?;
        String::from_utf8(text).map_err(|_| own("a name is not UTF-8"))
    }

    /// The bytes of a buffer that the library filled, and the buffer released.
    fn take(self, mut buffer: Buffer) -> Vec<u8> {
        let bytes = match buffer.value.is_null() {
            true => Vec::new(),
            // SAFETY: the library said that so many bytes are there, and they stay until they are released.
            false => unsafe { std::slice::from_raw_parts(buffer.value.cast::<u8>(), buffer.length) }.to_vec(),
        };
        let mut minor = 0;
        // SAFETY: the buffer came from the library, or is empty; it is not used again.
        unsafe { (self.0.release_buffer)(&mut minor, &mut buffer) };
        bytes
    }

    fn check(self, major: u32, minor: u32) -> Result<(), GssError> {
        // The upper half holds errors, the lower information (RFC 2744 §3.9.1).
        if major >> 16 == 0 {
            return Ok(());
        }
        let mut texts = self.texts(major, 1);
        texts.extend(self.texts(minor, 2));
        texts.dedup();
        Err(GssError { major, minor, text: texts.join(": ") })
    }

    fn texts(self, status: u32, kind: c_int) -> Vec<String> {
        let (mut more, mut texts) = (0, Vec::new());
        for _ in 0..MOST_TEXTS {
            let (mut minor, mut text) = (0, Buffer::empty());
            // SAFETY: all pointers are to live objects of this frame or constants; `take` releases the text.
            let major = unsafe { (self.0.display_status)(&mut minor, status, kind, &KERBEROS, &mut more, &mut text) };
            texts.push(String::from_utf8_lossy(&self.take(text)).into_owned());
            if major >> 16 != 0 || more == 0 {
                break;
            }
        }
        texts.retain(|text| !text.is_empty());
        texts
    }
}

impl Context {
    /// Takes a token of a client; one that does not agree to [`WANTED`] is refused: without a part of ours in the keys, somebody who has heard a
    /// login could play all of it again, lines included.
    pub fn accept(&mut self, credential: &Credential, token: &[u8]) -> Result<Progress, GssError> {
        let token = bounded(token)?;
        let (mut minor, mut answer, mut client, mut flags) = (0, Buffer::empty(), ptr::null_mut(), 0);
        // SAFETY: the token is only read; context and name are written by the library and owned by this value and by `Name`; the rest is
        // not wanted (RFC 2744 §5.1).
        let major = unsafe {
            (self.api.0.accept)(
                &mut minor,
                &mut self.handle,
                credential.handle,
                &mut borrowed(token),
                ptr::null_mut(),
                &mut client,
                ptr::null_mut(),
                &mut answer,
                &mut flags,
                ptr::null_mut(),
                ptr::null_mut(),
            )
        };
        let token = self.api.take(answer);
        let name = Name { api: self.api, handle: client };
        self.api.check(major, minor)?;
        if major & CONTINUE == 0 && flags & WANTED != WANTED {
            return Err(own(&missing(flags)));
        }
        let done = match major & CONTINUE {
            0 => Some(Some(self.api.text_of(name.into_handle())?)),
            _ => None,
        };
        Ok(Progress { token, done })
    }

    /// The first token for a service such as `host@dtn.example.org`, or the answer to its token, with the tickets of this account.
    pub fn initiate(&mut self, service: &str, token: Option<&[u8]>) -> Result<Progress, GssError> {
        self.initiate_asking(WANTED, service, token)
    }

    /// The same, where the other side is asked for other flags than [`WANTED`] and has to agree to these.
    pub fn initiate_asking(&mut self, wanted: u32, service: &str, token: Option<&[u8]>) -> Result<Progress, GssError> {
        let target = self.api.service(service)?;
        let mut input = borrowed(bounded(token.unwrap_or_default())?);
        let (mut minor, mut answer, mut flags) = (0, Buffer::empty(), 0);
        // SAFETY: the token is only read; the context is written by the library and owned by this value; null stands for the account's own
        // credential and for what is not wanted (RFC 2744 §5.19).
        let major = unsafe {
            (self.api.0.initiate)(
                &mut minor,
                ptr::null_mut(),
                &mut self.handle,
                target.handle,
                &KERBEROS,
                wanted,
                0,
                ptr::null_mut(),
                &mut input,
                ptr::null_mut(),
                &mut answer,
                &mut flags,
                ptr::null_mut(),
            )
        };
        let token = self.api.take(answer);
        self.api.check(major, minor)?;
        let over = major & CONTINUE == 0;
        if over && flags & wanted != wanted {
            return Err(own("the other side has not proven who it is, or protects nothing"));
        }
        Ok(Progress { token, done: over.then_some(None) })
    }

    /// Whom a handshake that is over was between.
    pub fn ends(&self) -> Result<Ends, GssError> {
        let (mut minor, mut client, mut server, mut seconds) = (0, ptr::null_mut(), ptr::null_mut(), 0);
        // SAFETY: a null context is refused by the library; names are written by it and owned by `Name`; the rest is not wanted
        // (RFC 2744 §5.21).
        let major = unsafe {
            (self.api.0.inquire_context)(
                &mut minor,
                self.handle,
                &mut client,
                &mut server,
                &mut seconds,
                ptr::null_mut(),
                ptr::null_mut(),
                ptr::null_mut(),
                ptr::null_mut(),
            )
        };
        let (client, server) = (Name { api: self.api, handle: client }, Name { api: self.api, handle: server });
        self.api.check(major, minor)?;
        let (client, server) = (self.api.text_of(client.into_handle())?, self.api.text_of(server.into_handle())?);
        Ok(Ends { client, server, seconds })
    }

    /// Encrypts a message and guards it against change, repetition and loss.
    pub fn wrap(&mut self, plain: &[u8]) -> Result<Vec<u8>, GssError> {
        let (mut minor, mut encrypted, mut wrapped) = (0, 0, Buffer::empty());
        // SAFETY: the message is only read; `take` releases what the library made. A null context is refused by it.
        let major = unsafe {
            (self.api.0.wrap)(&mut minor, self.handle, 1, 0, &mut borrowed(plain), &mut encrypted, &mut wrapped)
        };
        let wrapped = self.api.take(wrapped);
        self.api.check(major, minor)?;
        if encrypted == 0 {
            return Err(own("the message would not be encrypted"));
        }
        Ok(wrapped)
    }

    /// The message in a token, and whether it was encrypted.
    pub fn unwrap(&mut self, token: &[u8]) -> Result<(Vec<u8>, bool), GssError> {
        /// GSS_S_DUPLICATE_TOKEN, _OLD_TOKEN, _UNSEQ_TOKEN, _GAP_TOKEN.
        const OUT_OF_ORDER: u32 = 2 | 4 | 8 | 16;
        let token = bounded(token)?;
        let (mut minor, mut encrypted, mut plain) = (0, 0, Buffer::empty());
        // SAFETY: the token is only read; `take` releases what the library made. A null context is refused by it.
        let major = unsafe {
            (self.api.0.unwrap)(
                &mut minor,
                self.handle,
                &mut borrowed(token),
                &mut plain,
                &mut encrypted,
                ptr::null_mut(),
            )
        };
        let plain = self.api.take(plain);
        self.api.check(major, minor)?;
        if major & OUT_OF_ORDER != 0 {
            return Err(own("a message was repeated, left out or comes too late"));
        }
        Ok((plain, encrypted != 0))
    }
}

impl Name {
    fn into_handle(mut self) -> Handle {
        std::mem::replace(&mut self.handle, ptr::null_mut())
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        let mut minor = 0;
        // SAFETY: the handle is a live name or null, which is released without effect; it is not used again.
        unsafe { (self.api.0.release_name)(&mut minor, &mut self.handle) };
    }
}

impl Drop for Credential {
    fn drop(&mut self) {
        let mut minor = 0;
        // SAFETY: the handle is a live credential; it is not used again.
        unsafe { (self.api.0.release_cred)(&mut minor, &mut self.handle) };
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        let mut minor = 0;
        // SAFETY: the handle is a live context or null, which is deleted without effect; it is not used again.
        unsafe { (self.api.0.delete_context)(&mut minor, &mut self.handle, ptr::null_mut()) };
    }
}

impl Buffer {
    fn empty() -> Self {
        Self { length: 0, value: ptr::null_mut() }
    }
}

/// Bytes that the library only reads.
fn borrowed(bytes: &[u8]) -> Buffer {
    Buffer { length: bytes.len(), value: bytes.as_ptr().cast_mut().cast() }
}

fn bounded(token: &[u8]) -> Result<&[u8], GssError> {
    if token.len() > MOST_TOKEN { Err(own("the token is too long")) } else { Ok(token) }
}

/// What a client did not agree to, and the cure.
fn missing(flags: u32) -> String {
    let names = [
        (MUTUAL, "mutual authentication"),
        (REPLAY, "detection of repeated messages (replay)"),
        (SEQUENCE, "detection of lost messages (sequence)"),
        (SEALED, "encryption"),
    ];
    let missing = names.iter().filter(|(flag, _)| flags & flag != *flag).map(|(_, name)| *name).collect::<Vec<_>>();
    format!("this client does not ask for {}: set it to do so, or use another one", missing.join(" and "))
}

fn own(text: &str) -> GssError {
    GssError { major: 0, minor: 0, text: text.to_owned() }
}

impl Functions {
    fn load() -> Result<Self, String> {
        let library = Library::open(LIBRARY)?;
        let find = |name: &CStr| library.find(name);
        // SAFETY: each function has the type that RFC 2744 and MIT's gssapi_ext.h declare for its name, and stays for ever.
        unsafe {
            use std::mem::transmute;
            Ok(Self {
                import_name: transmute::<*mut c_void, ImportName>(find(c"gss_import_name")?),
                release_name: transmute::<*mut c_void, ReleaseHandle>(find(c"gss_release_name")?),
                acquire_from: transmute::<*mut c_void, AcquireFrom>(find(c"gss_acquire_cred_from")?),
                release_cred: transmute::<*mut c_void, ReleaseHandle>(find(c"gss_release_cred")?),
                initiate: transmute::<*mut c_void, Initiate>(find(c"gss_init_sec_context")?),
                accept: transmute::<*mut c_void, Accept>(find(c"gss_accept_sec_context")?),
                delete_context: transmute::<*mut c_void, DeleteContext>(find(c"gss_delete_sec_context")?),
                inquire_context: transmute::<*mut c_void, InquireContext>(find(c"gss_inquire_context")?),
                wrap: transmute::<*mut c_void, Wrap>(find(c"gss_wrap")?),
                unwrap: transmute::<*mut c_void, Unwrap>(find(c"gss_unwrap")?),
                release_buffer: transmute::<*mut c_void, ReleaseBuffer>(find(c"gss_release_buffer")?),
                display_name: transmute::<*mut c_void, DisplayName>(find(c"gss_display_name")?),
                display_status: transmute::<*mut c_void, DisplayStatus>(find(c"gss_display_status")?),
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn api() -> Option<Gssapi> {
        let loaded = Gssapi::load();
        if let Err(error) = &loaded {
            println!("skipped: {error}");
        }
        loaded.ok()
    }

    #[test]
    fn what_cannot_work_is_refused_in_words() {
        let Some(api) = api() else { return };
        let missing = api.acceptor("FILE:/no/such/keytab").unwrap_err();
        assert!(missing.text.contains("/no/such/keytab"), "{missing}");
        let mut context = api.context();
        assert!(context.wrap(b"x").is_err() && context.unwrap(b"x").is_err(), "nothing was agreed");
        assert!(context.ends().is_err());
        let refused = context.initiate("host@localhost", Some(b"rubbish")).unwrap_err();
        assert!(!refused.text.is_empty());
        assert_eq!(context.unwrap(&vec![0; MOST_TOKEN + 1]).unwrap_err().text, "the token is too long");
        assert!(api.acceptor("FILE:/a\0b").is_err());
    }
}
