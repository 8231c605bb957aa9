//! What the account's cache of Kerberos tickets holds, by the library of MIT Kerberos: GSSAPI tells nothing of tickets that have ended.
//!
//! The library is looked for when it is needed, as in [`crate::gssapi`].

use std::ffi::{CStr, c_char, c_void};
use std::io;
use std::ptr;
use std::sync::OnceLock;

use crate::library::Library;

/// The library, as Debian, Red Hat and SUSE call it.
const LIBRARY: &CStr = c"libkrb5.so.3";

/// Tickets of a cache that are looked at.
const MOST_TICKETS: usize = 1000;

/// Service whose tickets get all others (RFC 4120 §7.3).
const GRANTING: &str = "krbtgt/";

/// The cache that programs of this account use, and what is in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tickets {
    /// Where it is, `FILE:/tmp/krb5cc_1000`.
    pub place: String,
    /// Whose tickets they are, `ada@GRID.ORG`; `None`: there are none.
    pub principal: Option<String>,
    /// End of the latest ticket that gets others, seconds since 1970; `None`: there is none.
    pub until: Option<i64>,
}

type Handle = *mut c_void;

/// krb5_data.
#[repr(C)]
struct Data {
    magic: i32,
    length: u32,
    data: *mut c_char,
}

/// krb5_creds, with what is of no interest as bare numbers and pointers.
#[repr(C)]
struct Ticket {
    magic: i32,
    client: Handle,
    server: Handle,
    key_magic: i32,
    key_kind: i32,
    key_length: u32,
    key: Handle,
    authenticated: i32,
    start: i32,
    end: i32,
    renew_until: i32,
    is_session_key: u32,
    flags: i32,
    addresses: Handle,
    ticket: Data,
    second_ticket: Data,
    authorization: Handle,
}

type InitContext = unsafe extern "C" fn(*mut Handle) -> i32;
type FreeContext = unsafe extern "C" fn(Handle);
type DefaultCache = unsafe extern "C" fn(Handle, *mut Handle) -> i32;
type CloseCache = unsafe extern "C" fn(Handle, Handle) -> i32;
type FullName = unsafe extern "C" fn(Handle, Handle, *mut *mut c_char) -> i32;
type Principal = unsafe extern "C" fn(Handle, Handle, *mut Handle) -> i32;
type FreePrincipal = unsafe extern "C" fn(Handle, Handle);
type Unparse = unsafe extern "C" fn(Handle, Handle, *mut *mut c_char) -> i32;
type FreeText = unsafe extern "C" fn(Handle, *mut c_char);
type Start = unsafe extern "C" fn(Handle, Handle, *mut Handle) -> i32;
type Next = unsafe extern "C" fn(Handle, Handle, *mut Handle, *mut Ticket) -> i32;
type End = unsafe extern "C" fn(Handle, Handle, *mut Handle) -> i32;
type FreeTicket = unsafe extern "C" fn(Handle, *mut Ticket);

/// Functions of the library, which is never unloaded.
struct Functions {
    init_context: InitContext,
    free_context: FreeContext,
    default_cache: DefaultCache,
    close_cache: CloseCache,
    full_name: FullName,
    principal: Principal,
    free_principal: FreePrincipal,
    unparse: Unparse,
    free_text: FreeText,
    start: Start,
    next: Next,
    end: End,
    free_ticket: FreeTicket,
}

/// The library's own state, for one look.
struct Session {
    api: &'static Functions,
    context: Handle,
}

/// An open cache.
struct Cache<'a> {
    session: &'a Session,
    handle: Handle,
}

/// Looks into the cache that the environment names (`KRB5CCNAME`), or the usual one; it is only read.
///
/// # Errors
/// `NotFound` without the library; `Other` if it cannot tell which cache that is.
pub fn tickets() -> io::Result<Tickets> {
    static LOADED: OnceLock<Result<Functions, String>> = OnceLock::new();
    let loaded = LOADED.get_or_init(Functions::load);
    let api = loaded.as_ref().map_err(|text| io::Error::new(io::ErrorKind::NotFound, text.clone()))?;
    let session = Session::new(api)?;
    let cache = session.cache()?;
    let place = cache.name()?;
    let principal = cache.principal();
    let until = principal.as_ref().and_then(|_| cache.until());
    Ok(Tickets { place, principal, until })
}

impl Session {
    fn new(api: &'static Functions) -> io::Result<Self> {
        let mut context = ptr::null_mut();
        // SAFETY: the pointer is to a live object of this frame.
        check(unsafe { (api.init_context)(&mut context) })?;
        Ok(Self { api, context })
    }

    fn cache(&self) -> io::Result<Cache<'_>> {
        let mut handle = ptr::null_mut();
        // SAFETY: the context is live, and the pointer is to a live object of this frame.
        check(unsafe { (self.api.default_cache)(self.context, &mut handle) })?;
        Ok(Cache { session: self, handle })
    }

    /// A text that the library made, and the text released.
    fn take(&self, text: *mut c_char) -> String {
        if text.is_null() {
            return String::new();
        }
        // SAFETY: the library made a C string, which stays until it is released.
        let taken = unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
        // SAFETY: it came from the library and is not used again.
        unsafe { (self.api.free_text)(self.context, text) };
        taken
    }

    /// The text of a live principal.
    fn text_of(&self, principal: Handle) -> Option<String> {
        let mut text = ptr::null_mut();
        // SAFETY: context and principal are live, and the pointer is to a live object of this frame.
        let made = unsafe { (self.api.unparse)(self.context, principal, &mut text) };
        (made == 0).then(|| self.take(text))
    }
}

impl Cache<'_> {
    fn name(&self) -> io::Result<String> {
        let mut text = ptr::null_mut();
        // SAFETY: context and cache are live, and the pointer is to a live object of this frame.
        check(unsafe { (self.session.api.full_name)(self.session.context, self.handle, &mut text) })?;
        Ok(self.session.take(text))
    }

    fn principal(&self) -> Option<String> {
        let Session { api, context } = self.session;
        let mut principal = ptr::null_mut();
        // SAFETY: context and cache are live, and the pointer is to a live object of this frame.
        if unsafe { (api.principal)(*context, self.handle, &mut principal) } != 0 {
            return None;
        }
        let text = self.session.text_of(principal);
        // SAFETY: the principal came from the library and is not used again.
        unsafe { (api.free_principal)(*context, principal) };
        text
    }

    fn until(&self) -> Option<i64> {
        let Session { api, context } = self.session;
        let mut cursor = ptr::null_mut();
        // SAFETY: context and cache are live, and the pointer is to a live object of this frame.
        if unsafe { (api.start)(*context, self.handle, &mut cursor) } != 0 {
            return None;
        }
        let ends = (0..MOST_TICKETS).map_while(|_| self.next(&mut cursor));
        let latest = ends.flatten().max();
        // SAFETY: the cursor came from the library and is not used again.
        unsafe { (api.end)(*context, self.handle, &mut cursor) };
        latest
    }

    /// The end of the next ticket if it gets others; `None`: there is no further one.
    fn next(&self, cursor: &mut Handle) -> Option<Option<i64>> {
        let Session { api, context } = self.session;
        // SAFETY: numbers and pointers, for all of which zero is a value.
        let mut ticket: Ticket = unsafe { std::mem::zeroed() };
        // SAFETY: context, cache and cursor are live; the ticket has the layout of krb5_creds and is filled only if the call succeeds.
        if unsafe { (api.next)(*context, self.handle, cursor, &mut ticket) } != 0 {
            return None;
        }
        let service = self.session.text_of(ticket.server);
        // The library's times are unsigned from 2038 on.
        let end = service.is_some_and(|name| name.starts_with(GRANTING)).then_some(i64::from(ticket.end as u32));
        // SAFETY: the library filled the ticket, and what is in it is not used again.
        unsafe { (api.free_ticket)(*context, &mut ticket) };
        Some(end)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // SAFETY: the context is live and not used again.
        unsafe { (self.api.free_context)(self.context) };
    }
}

impl Drop for Cache<'_> {
    fn drop(&mut self) {
        // SAFETY: context and cache are live, and the cache is not used again.
        unsafe { (self.session.api.close_cache)(self.session.context, self.handle) };
    }
}

fn check(code: i32) -> io::Result<()> {
    match code {
        0 => Ok(()),
        code => Err(io::Error::other(format!("error {code} of the Kerberos library"))),
    }
}

impl Functions {
    fn load() -> Result<Self, String> {
        let library = Library::open(LIBRARY)?;
        let find = |name: &CStr| library.find(name);
        // SAFETY: each function has the type that MIT's krb5.h declares for its name, and stays for ever.
        unsafe {
            use std::mem::transmute;
            Ok(Self {
                init_context: transmute::<*mut c_void, InitContext>(find(c"krb5_init_context")?),
                free_context: transmute::<*mut c_void, FreeContext>(find(c"krb5_free_context")?),
                default_cache: transmute::<*mut c_void, DefaultCache>(find(c"krb5_cc_default")?),
                close_cache: transmute::<*mut c_void, CloseCache>(find(c"krb5_cc_close")?),
                full_name: transmute::<*mut c_void, FullName>(find(c"krb5_cc_get_full_name")?),
                principal: transmute::<*mut c_void, Principal>(find(c"krb5_cc_get_principal")?),
                free_principal: transmute::<*mut c_void, FreePrincipal>(find(c"krb5_free_principal")?),
                unparse: transmute::<*mut c_void, Unparse>(find(c"krb5_unparse_name")?),
                free_text: transmute::<*mut c_void, FreeText>(find(c"krb5_free_string")?),
                start: transmute::<*mut c_void, Start>(find(c"krb5_cc_start_seq_get")?),
                next: transmute::<*mut c_void, Next>(find(c"krb5_cc_next_cred")?),
                end: transmute::<*mut c_void, End>(find(c"krb5_cc_end_seq_get")?),
                free_ticket: transmute::<*mut c_void, FreeTicket>(find(c"krb5_free_cred_contents")?),
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With tickets it is looked at in testkit, beside a KDC.
    #[test]
    fn the_cache_of_this_account_is_named() {
        match tickets() {
            Ok(found) => assert!(found.place.contains(':') && (found.principal.is_some() || found.until.is_none())),
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::NotFound, "{error}");
                println!("skipped: {error}");
            }
        }
    }

    #[test]
    fn a_ticket_has_the_layout_of_the_library() {
        // x86-64 and aarch64: pointers of eight bytes. The end of life stands behind magic, two principals, the key and two times.
        assert_eq!(std::mem::offset_of!(Ticket, end), 56);
        assert_eq!(std::mem::size_of::<Ticket>(), 120);
    }
}
