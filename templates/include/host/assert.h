// <assert.h> for NVRTC: assert is built in, but the standard lets NDEBUG change before each include.
#undef assert
#ifdef NDEBUG
#define assert(condition) (static_cast<void>(0))
#else
#define assert(condition) \
    ((condition) ? static_cast<void>(0) \
                 : __assertfail(#condition, __FILE__, __LINE__, __PRETTY_FUNCTION__, sizeof(char)))
#endif
