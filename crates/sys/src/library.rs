//! Libraries that are looked for when they are needed: programs run without them.

use std::ffi::{CStr, c_void};

/// A library that was found; it is never unloaded.
pub(crate) struct Library {
    name: &'static CStr,
    handle: *mut c_void,
}

impl Library {
    /// Loads it; the text says that it is missing.
    pub(crate) fn open(name: &'static CStr) -> Result<Self, String> {
        // SAFETY: the name is a C string; the library's own start-up code is that of every program that is linked with it.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        match handle.is_null() {
            true => Err(format!("{} is not installed on this host", name.to_string_lossy())),
            false => Ok(Self { name, handle }),
        }
    }

    /// A function of it, which stays for ever.
    pub(crate) fn find(&self, function: &CStr) -> Result<*mut c_void, String> {
        // SAFETY: the library is loaded and is never unloaded; the name is a C string.
        let found = unsafe { libc::dlsym(self.handle, function.as_ptr()) };
        match found.is_null() {
            true => Err(format!("{} has no {}", self.name.to_string_lossy(), function.to_string_lossy())),
            false => Ok(found),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_named() {
        assert!(Library::open(c"libnothing.so.0").err().is_some_and(|text| text.contains("libnothing.so.0")));
        let c = Library::open(c"libc.so.6").unwrap_or_else(|text| panic!("{text}"));
        assert!(c.find(c"getpid").is_ok());
        assert_eq!(c.find(c"no_such_function"), Err("libc.so.6 has no no_such_function".to_owned()));
    }
}
