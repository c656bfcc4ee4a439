import pycuda.driver as drv

drv.init()
count = drv.Device.count()
print("devices:", count)
assert count >= 1

for ordinal in range(count):
    dev = drv.Device(ordinal)
    attributes = dev.get_attributes()
    print(ordinal, dev.name(), "%d.%d" % dev.compute_capability(), dev.total_memory() // 2**20, "MiB", dev.pci_bus_id())
    for name, value in sorted((str(key), value) for key, value in attributes.items()):
        print("   ", name, value)
    assert len(attributes) > 20
    assert isinstance(dev.name(), str)
    assert dev.compute_capability() >= (2, 0)
    assert dev.total_memory() > 2**20
    assert dev.get_attribute(drv.device_attribute.MAX_THREADS_PER_BLOCK) == 1024
    assert attributes[drv.device_attribute.WARP_SIZE] == 32
    assert dev.max_block_dim_x == 1024
    assert dev.warp_size == 32
    assert dev.multiprocessor_count >= 1

assert len(drv.get_version()) == 3
assert drv.get_driver_version() >= 4000
context = drv.Device(0).make_context()
try:
    assert drv.Context.get_device() == drv.Device(0)
    free, total = drv.mem_get_info()
    assert 0 < free <= total
finally:
    context.pop()
    context.detach()
